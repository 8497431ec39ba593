"""Kernels work where compiled code cannot be cached."""

import logging

from spatialpdvi.kernels import dispatch


def test_a_kernel_is_compiled_where_its_cache_cannot_be_written(monkeypatch, caplog):
    real = dispatch.njit

    def without_a_place(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'kernels.py'")
        return real(**options)

    monkeypatch.setattr(dispatch, "njit", without_a_place)
    with caplog.at_level(logging.INFO, logger="spatialpdvi"):
        double = dispatch.compiled(lambda x: 2 * x)
    assert double(21) == 42
    assert "NUMBA_CACHE_DIR" in caplog.text
