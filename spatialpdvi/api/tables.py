"""Tables as files, and domains as a table, for programs that read neither h5ad nor zarr."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spatialpdvi.api.checked import fitted_files
from spatialpdvi.errors import InputError, missing_package
from spatialpdvi.io.formats.sources import AnnDataSource, Source
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.storage.paths import different_names, resolve

if TYPE_CHECKING:
    from anndata import AnnData
    from pandas import DataFrame

__all__ = ["check_table", "domain_table", "write_domain_table", "write_table"]

_DIGITS = 6  # of probabilities, which are stored in single precision
_BETWEEN = {".csv": ",", ".tsv": "\t"}  # columns, by the ending of a table that is text


def domain_table(
    adata: "AnnData", *, key_added: str = "pdvi", spatial_key: str | None = None, sample_key: str | None = None
) -> "DataFrame":
    """Return the domains of a fitted section as a table with a row for each spot that was fitted.

    Parameters
    ----------
    adata
        With the result of a fit or a prediction.
    key_added
        Prefix of the keys that the fit wrote.
    spatial_key
        Key in ``obsm`` of the coordinates, or their columns of ``obs``, such as "x,y"; by default as the fit.
    sample_key
        Column of ``obs`` with the section of each spot; by default that of the fit.

    Returns
    -------
    The columns ``spot`` (its name), ``section`` where there are several, ``x`` and ``y`` (and ``z``), ``domain``,
    ``confidence``, ``confidence_calibrated`` where the fit wrote it, and ``posterior_0``, ``posterior_1`` and so on by
    the names of the domains. Probabilities have six digits.

    Raises
    ------
    InputError
        Where there is no fit.

    Examples
    --------
    >>> table = spv.domain_table(adata)
    >>> table.columns[:4].tolist()
    ['spot', 'x', 'y', 'domain']
    """
    return _table(AnnDataSource(adata, "write_domain_table"), Keys(key_added), spatial_key, sample_key)


def write_domain_table(
    paths: Sequence[str | Path],
    output: str | Path,
    *,
    key_added: str = "pdvi",
    spatial_key: str | None = None,
    sample_key: str | None = None,
) -> None:
    """Write the domains of fitted files as one table.

    Parameters
    ----------
    paths
        Fitted h5ad files or zarr stores, of different names. Of several, the column ``section`` has their names. Where
        one of them has sections of its own, ``section`` has the names of these, and ``file`` before it those of the
        files.
    output
        File to write, ending in .csv, .tsv (with tabs) or .parquet; all or nothing.
    key_added, spatial_key, sample_key
        As for `domain_table`.

    Raises
    ------
    InputError
        Where there is no file, two have the same name, one has no fit, the ending is another, or pyarrow is missing
        for parquet.

    Examples
    --------
    >>> spv.write_domain_table(["fitted.h5ad"], "domains.csv")
    >>> Path("domains.csv").read_text(encoding="utf-8").partition(",")[0]
    'spot'
    """
    import pandas as pd

    from spatialpdvi.io.formats.h5ad import H5adSource

    check_table(output)
    files = fitted_files(paths)
    tables = {}
    for name, file in zip(different_names(files), files, strict=True):
        with H5adSource(file) as source:
            tables[name] = _table(source, Keys(key_added), spatial_key, sample_key)
    if len(tables) > 1:
        has_sections = any("section" in table for table in tables.values())
        for name, table in tables.items():
            if "section" not in table:
                table.insert(1, "section", name)
            if has_sections:
                table.insert(1, "file", name)
    write_table(pd.concat(tables.values(), ignore_index=True), output)


def write_table(table: "DataFrame", output: str | Path) -> None:
    """Write a table, without its index, as `check_table` has found it to be possible; all or nothing.

    Parameters
    ----------
    table
        With columns that have names.
    output
        As for `write_domain_table`.
    """
    from spatialpdvi.io.storage.atomic import replacing
    from spatialpdvi.io.storage.disk import clear_errors

    target = resolve(output)
    ending = Path(output).suffix.lower()
    with clear_errors(output), replacing(target, target.parent) as temporary:
        if ending in _BETWEEN:
            table.to_csv(temporary, index=False, sep=_BETWEEN[ending])
        else:
            table.to_parquet(temporary, index=False)


def check_table(output: str | Path) -> None:
    """Check before hours of work that a table can be written.

    Parameters
    ----------
    output
        As for `write_domain_table`.

    Raises
    ------
    InputError
        Where it cannot.

    Examples
    --------
    >>> from spatialpdvi.api import check_table
    >>> check_table("domains.xlsx")
    Traceback (most recent call last):
        ...
    spatialpdvi.errors.InputError: Expected `output` to be a file that ends in .csv, .tsv or .parquet, found ...
    """
    from spatialpdvi.io.storage.outputs import check_writable
    from spatialpdvi.io.storage.paths import locate

    location = locate(output, option="output")
    ending = location.path.suffix.lower()
    if ending not in {*_BETWEEN, ".parquet"}:
        advice = "Its ending sets the format; give it one of these."
        raise InputError("a file that ends in .csv, .tsv or .parquet", repr(str(output)), advice, option="output")
    if ending == ".parquet" and find_spec("pyarrow") is None:
        raise missing_package("pyarrow", f"to write {str(output)!r}", "pyarrow. Or write a .csv file.")
    check_writable(location)


def _table(source: Source, keys: Keys, spatial_key: str | None, sample_key: str | None) -> "DataFrame":
    import numpy as np
    import pandas as pd

    from spatialpdvi.io.results.fitted import samples_of_fit
    from spatialpdvi.io.results.left_out import select_fitted
    from spatialpdvi.io.results.stored import read_stored
    from spatialpdvi.io.results.summary import spatial_key_of_fit
    from spatialpdvi.io.section.coordinates import read_coordinates

    source = select_fitted(source, keys)
    fit = read_stored(source, keys)
    samples = samples_of_fit(source, fit.summary, sample_key)
    where = spatial_key_of_fit(fit.summary, spatial_key)
    coordinates, spots = read_coordinates(source, where, samples=samples), np.arange(fit.codes.size)
    columns: dict[str, object] = {"spot": np.asarray(source.obs_names(), dtype=object)}
    if samples is not None:
        columns["section"] = np.asarray(samples, dtype=object)
    columns |= dict(zip("xyz", coordinates.T, strict=False))
    columns["domain"] = np.asarray(fit.names, dtype=object)[fit.codes]
    columns["confidence"] = fit.posterior[spots, fit.codes].round(_DIGITS)
    if fit.calibrated is not None:
        columns["confidence_calibrated"] = fit.calibrated[spots, fit.codes].round(_DIGITS)
    posterior = fit.posterior.round(_DIGITS).T
    return pd.DataFrame(columns | {f"posterior_{name}": own for name, own in zip(fit.names, posterior, strict=True)})
