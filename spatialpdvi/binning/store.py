"""Write a sample to a new h5ad file or zarr store, block by block, all or nothing."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from anndata.io import write_elem

from spatialpdvi.binning.images import Library, check_inside, spacing_of
from spatialpdvi.binning.sample import Sample
from spatialpdvi.errors import InputError
from spatialpdvi.io.results.writing import append_counts, new_store
from spatialpdvi.io.section.background import IN_TISSUE
from spatialpdvi.io.section.images import IMAGES
from spatialpdvi.io.storage.disk import clear_errors
from spatialpdvi.io.storage.elements import AS_ANNDATA, is_hdf5
from spatialpdvi.io.storage.paths import AnyPath

__all__ = ["Written", "write_sample"]

UNS_KEY = "binning"
_VALUE_BYTES = 8  # a count and its column
_SPOT_VALUES = 8  # of which a spot is expected to have more: how many spots there are is known in the end
_IMAGE = {"compression": "gzip", "compression_opts": 1}
_EMPTY = ("layers", "obsp", "varm", "varp")


class Written(NamedTuple):
    """The size of a sample that was written."""

    n_spots: int
    n_genes: int
    n_values: int
    n_tissue: int | None = None  # spots on the tissue, where they are marked
    image: str = ""  # key of uns['spatial'], where there is an image


def write_sample(
    output: AnyPath, sample: Sample, facts: Mapping[str, Any], *, name: str, library: Library | None
) -> Written:
    """Write counts in ``X`` (CSR int32), ``obs``, ``var``, ``obsm['spatial']`` and ``uns['binning']``.

    Parameters
    ----------
    output
        A zarr store where it ends in .zarr, else an h5ad file; an existing one is replaced.
    sample
        Its blocks are read here.
    facts
        For ``uns['binning']``, in addition to those of the sample.
    name
        The name of the input in messages.
    library
        The image of the tissue, for ``uns['spatial']``; None where there is none.
    """
    n_values = sample.n_values
    new = new_store(output, n_spots=-(-n_values // _SPOT_VALUES), n_values=n_values, value_bytes=_VALUE_BYTES)
    with clear_errors(output), new as store:
        n_spots, n_values = _write_spots(store, sample, name)
        table = sample.genes().table()
        write_elem(store, "var", table)
        write_elem(store, "uns", {UNS_KEY: {**sample.facts(), **facts}})
        if library is not None:
            places = store["obsm"]["spatial"][()]
            if sample.facts()["unit"] == "DNB":  # Space Ranger has placed its own image
                check_inside(library, places)
            spot = library.factors.get("spot_diameter_fullres")
            _write_image(store, library if spot is not None else library.with_diameter(spacing_of(places)))
        for key in _EMPTY:
            write_elem(store, key, {})
        store.attrs.update(AS_ANNDATA)
        marked = store["obs"].get(IN_TISSUE)
        n_tissue = None if marked is None else int(np.sum(marked[()]))
    return Written(n_spots, len(table), n_values, n_tissue, "" if library is None else library.key)


def _write_spots(store: Any, sample: Sample, name: str) -> tuple[int, int]:
    """Write counts, names and places block by block; return the numbers of spots and values."""
    n_spots = n_values = 0
    for block in sample.blocks():
        counts, obs, spatial = block.counts, sample.obs(block.rows), sample.places(block.rows)
        append_counts(store, counts, n_values=sample.n_values)
        if not n_spots:
            write_elem(store, "obs", obs, dataset_kwargs=_growing(store, 1))
            write_elem(store, "obsm", {"spatial": spatial}, dataset_kwargs=_growing(store, 2))
        else:
            table = store["obs"]
            _append(table[str(table.attrs["_index"])], obs.index.to_numpy())
            for column in obs:
                _append(table[column], obs[column].to_numpy())
            _append(store["obsm"]["spatial"], spatial)
        n_spots += block.rows.size
        n_values += counts.nnz
    if not n_spots:
        raise InputError(
            f"molecules in {name}",
            "none in any spot",
            "Check that this is the right file.",
        )
    return n_spots, n_values


def _write_image(store: Any, library: Library) -> None:
    entry = library.entry()
    images = entry.pop("images")
    write_elem(store["uns"], IMAGES, {library.key: {"images": {}, **entry}})
    for size, pixels in images.items():
        write_elem(
            store["uns"][IMAGES][library.key]["images"],
            size,
            pixels,
            dataset_kwargs=_IMAGE if is_hdf5(store) else {},
        )


def _growing(store: Any, n_axes: int) -> dict[str, Any]:
    """The options that make arrays of HDF5 extensible; arrays of zarr always are."""
    return {"maxshape": (None,) * n_axes} if is_hdf5(store) else {}


def _append(array: Any, values: np.ndarray) -> None:
    before = array.shape[0]
    array.resize((before + len(values), *array.shape[1:]))
    array[before:] = values
