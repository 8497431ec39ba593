"""The section that a fit needs: read from its source, and checked against the options."""

import warnings
from typing import TYPE_CHECKING

import scipy.sparse as sp

from spatialpdvi.errors import InputError, InputWarning, option
from spatialpdvi.features.correction import check_harmony
from spatialpdvi.fitting.solve import SolverRun
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.keys import GROUPS_READ, Keys, check_not_replaced
from spatialpdvi.io.section.background import Exclusion
from spatialpdvi.io.section.coordinates import beside_fields, warn_of_sections_on_top
from spatialpdvi.io.section.counts import warn_of_other_features
from spatialpdvi.io.section.section import Section, read_section
from spatialpdvi.options.fit import KMEANS, FitOptions
from spatialpdvi.options.idle import idle_options, option_as_set
from spatialpdvi.runtime.memory import SPOT_BYTES, fit_bytes, memory_limit, warn_of_limit

if TYPE_CHECKING:
    from spatialpdvi.distributed import Cluster

__all__ = ["check_section", "read_inputs"]


def read_inputs(
    source: Source, options: FitOptions, cluster: "Cluster | None" = None, *, selects_genes: bool = True
) -> Section:
    """Read and check the section that a fit with these options needs.

    Parameters
    ----------
    source
        The file, store or AnnData.
    options
        Of the fit: which keys are read, and how much memory counts may take.
    cluster
        Leaves counts on disk, for its workers to read block by block.
    selects_genes
        Whether genes are selected in this section; there is then a warning of features that are no genes.

    Raises
    ------
    InputError
        Where a key is missing, its values cannot be used, or the result will replace them.
    """
    check_not_replaced(source, Keys(options.key_added), {name: getattr(options, name) for name in GROUPS_READ})
    what = f"The fit of {source.n_obs:,} spots, without their counts,"
    warn_of_limit(fit_bytes(source.n_obs), options.memory, what, "The limit decides only how counts are read.")
    section = read_section(
        source,
        layer=options.layer,
        spatial_key=options.spatial_key,
        label_key=options.label_key,
        rep=options.rep,
        init=_initial_column(source, options.init),
        graph=options.graph,
        sample_key=options.sample_key,
        # the workers of a cluster read the counts
        memory=max(0, memory_limit(options.memory) - SPOT_BYTES * source.n_obs) if cluster is None else 0,
        exclusion=Exclusion(options.mask, options.min_counts, options.min_genes),
    )
    is_one = options.sample_key is None and beside_fields(source, options.spatial_key) is None
    if is_one and options.graph is None:
        warn_of_sections_on_top(source, section.coordinates, section.kept)
    if selects_genes and section.counts is not None:
        warn_of_other_features(source, section.counts_source)
    if cluster is None or section.counts is None or isinstance(section.counts, sp.csr_matrix):
        return section
    from spatialpdvi.distributed import ClusterRows

    return section._replace(counts=ClusterRows(cluster, section.counts))


def _initial_column(source: Source, init: str | None) -> str | None:
    """The column of obs that a fit starts from, if it starts from one."""
    if init != KMEANS:
        return init
    if KMEANS in source.obs_keys():
        raise InputError(
            f"no column obs[{KMEANS!r}] with {option('init', KMEANS)}, which clusters the features",
            "one",
            "Rename it, to start from its labels or from new ones.",
        )
    return None


def check_section(section: Section, options: FitOptions) -> None:
    """Check that options fit a section before anything is computed, and warn of options that have no effect.

    Raises
    ------
    InputError
        Where the solver does not have an option, there are more domains, states, patches or neighbours than spots, the
        start labels name more domains than K, or the options need several sections, a third coordinate or a package
        that are missing.
    """
    SolverRun.of(options)
    options.check_numbers(section.coordinates.shape[0])
    _check_start_labels(section, options)
    if options.correct != "none":
        _check_several(section, option("correct", options.correct))
    if options.correct == "harmony":
        check_harmony()
    if options.across_sections:
        _check_several(section, option("across_sections"))
        _check_depth(section, options)
    for names in idle_options(options):
        idle, chosen = (option_as_set(options, name) for name in names)
        text = f"{idle} has no effect together with {chosen}, and is not used."
        warnings.warn(InputWarning(text), stacklevel=2)


def _check_start_labels(section: Section, options: FitOptions) -> None:
    if section.init_labels is not None and section.init_labels.max() >= options.n_domains:
        raise InputError(
            f"a column of obs with at most {options.n_domains} labels, as many as {option('k')}",
            f"{section.init_labels.max() + 1} in obs[{options.init!r}]",
            f"Raise {option('k')} or start from another column.",
            option="init",
        )


def _check_several(section: Section, needed_by: str) -> None:
    if section.samples is None or len(section.samples.categories) < 2:
        raise InputError(
            f"several sections with {needed_by}", "one", f"Name {option('sample_key')}, or fit several files together."
        )


def _check_depth(section: Section, options: FitOptions) -> None:
    if section.coordinates.shape[1] != 3:
        raise InputError(
            f"coordinates in 3-D with {option('across_sections')}",
            f"2 columns in {options.spatial_key!r}",
            "Without a z, spots above each other would be at one place. Name aligned x, y and z with "
            f"{option('spatial_key')}: a key of obsm with 3 columns, or columns of obs with commas between (x,y,z).",
        )
