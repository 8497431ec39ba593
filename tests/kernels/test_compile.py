"""Kernels work where compiled code cannot be kept."""

import logging

from spatialpdvi.kernels import compile as compilation


def test_a_kernel_without_a_place_for_its_cache_is_compiled_all_the_same(monkeypatch, caplog):
    real = compilation.njit

    def without_a_place(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function 'f': no locator available for file 'kernels.py'")
        return real(**options)

    monkeypatch.setattr(compilation, "njit", without_a_place)
    with caplog.at_level(logging.INFO, logger="spatialpdvi"):
        double = compilation.compiled(lambda x: 2 * x)
    assert double(21) == 42
    assert "NUMBA_CACHE_DIR" in caplog.text
