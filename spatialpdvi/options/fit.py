"""The options of a fit: defaults, help texts and checks. The command line's options are made from this table."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from spatialpdvi.errors import InputError, as_argument, as_flag, in_words, option
from spatialpdvi.options.k_range import candidates, read_k
from spatialpdvi.options.validation import check_choice, check_range, kind_of, read_min_counts, read_states, read_value
from spatialpdvi.runtime.memory import parse_size

__all__ = [
    "IRRELEVANT",
    "KMEANS",
    "OF_A_SECTION",
    "RESTARTS",
    "SOLVERS",
    "SOLVER_OPTIONS",
    "FitOptions",
    "option_table",
]

_LEAST_N_PCS = 15  # the smallest default of n_pcs
TRANSFORMS = ("none", "log1p", "sqrt", "pearson")
RESTARTS = ("merge", "best")
CORRECTIONS = ("none", "center", "harmony")
DUALS = ("gradient", "zero")
TOTALS = ("all", "selected")
KMEANS = "kmeans"  # a start that is no column of obs
# options that describe a section, and not the model that is fitted to it
OF_A_SECTION = ("layer", "spatial_key", "label_key", "sample_key", "mask", "min_counts", "min_genes")
# options that change neither what is fitted nor how
IRRELEVANT = {"key_added", "save_graph", "memory"}

# Only the names, since importing the solvers loads numba and the help must not wait for that. A test compares them with
# the registry of solvers.
SOLVERS = (
    "p2dvi",
    "pdvi",
    "cavi",
    "rs-cavi",
    "memoized",
    "svi",
    "svi-rm",
    "pg-svi",
    "sngvi",
    "sgd",
    "rmsprop",
    "adam",
    "cv",
)
_OF_BATCHES = "all solvers but cavi, rs-cavi and memoized"  # those of mini-batches, of which options speak


def _option(default: Any, text: str, *, group: str) -> Any:
    return field(default=default, metadata={"help": text, "group": group})


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of a fit; on the command line they are flags of ``spatialpdvi fit``.

    Raises
    ------
    InputError
        Where a value has the wrong type or is out of range, or where two options exclude each other.

    Examples
    --------
    >>> spv.FitOptions(k=7, n_top_genes=2000).beta
    1.0
    >>> spv.FitOptions(k=1)
    Traceback (most recent call last):
        ...
    spatialpdvi.errors.InputError: Expected ...
    """

    k: int | str = field(
        metadata={
            "help": "Number of domains, at least 2. `fit` also accepts a range such as 4:15, or auto (2 to 20, and to "
            "30 where the evidence still rises), and chooses the number.",
            "group": "Model",
            "type": str,
        }
    )

    layer: str | None = _option(
        None,
        "Where the raw counts are: the name of a layer, X or raw.X. Default: the first of layer count, layer counts, X "
        "and raw.X that holds non-negative integers.",
        group="Input",
    )
    spatial_key: str = _option(
        "spatial",
        "Key in obsm of the 2-D or 3-D coordinates, or several columns of obs separated by commas, such as x,y,z.",
        group="Input",
    )
    label_key: str | None = _option(
        None,
        "Column of obs with known labels. They are used for scoring only. Default: annotation, if there is one.",
        group="Input",
    )
    sample_key: str | None = _option(
        None,
        "Column of obs that names the section of each spot. All sections share one set of domains; edges, averages and "
        "patches stay within a section. Default: all spots are one section.",
        group="Input",
    )
    rep: str | None = _option(
        None,
        "Key in obsm of features to fit as they are, such as X_pca or X_scVI, or X for the matrix of the file. Gene "
        "selection, normalisation and PCA are skipped. Default: features are computed from the counts.",
        group="Input",
    )

    mask: str | None = _option(
        None,
        "Column of obs that is true, or 1, for the spots to fit, such as in_tissue. The others stay in the file and "
        "have no domain. Default: all spots are fitted, with a warning where some seem to be off the tissue.",
        group="Input",
    )
    min_counts: int | str | None = field(
        default=None,
        metadata={
            "help": "Fewest counts of a spot that is fitted, or auto to leave out the spots off the tissue: those that "
            "lie together at the outside and whose counts form a peak of their own, at less than about a quarter of "
            "the counts of the tissue. Default: no limit.",
            "group": "Input",
            "type": str,
        },
    )
    min_genes: int | None = _option(
        None, "Fewest genes with a count of a spot that is fitted. Default: no limit.", group="Input"
    )

    n_top_genes: int = _option(3_000, "Number of highly variable genes to keep (seurat_v3).", group="Features")
    target_sum: float = _option(1e4, "Total counts of each spot after normalisation.", group="Features")
    totals: str = _option(
        "all",
        "Genes that count towards the total of a spot by which its counts are normalised: all, or selected for the "
        "highly variable ones alone.",
        group="Features",
    )
    transform: str = _option(
        "none",
        f"Transformation of the normalised counts before scaling, one of {', '.join(TRANSFORMS)}.",
        group="Features",
    )
    clip: float = _option(
        10.0,
        "Upper limit of scaled expression values, in standard deviations of the gene from 0. Larger values are set to "
        "it.",
        group="Features",
    )
    n_pcs: int | None = _option(
        None,
        "Number of principal components to fit; 0 fits the scaled genes themselves, as a sparse matrix. Default: "
        f"{_LEAST_N_PCS}, or K - 1 if that is more. With {option('rep')}, the default is all columns, or this "
        "many of them if they are principal components.",
        group="Features",
    )
    smooth: int | None = _option(
        None,
        "Number of nearest spots over which features are averaged; 0 turns smoothing off. Default: the number that "
        "best predicts the features of a spot from its neighbours. Where domains share cell states, only the restarts "
        "use averaged features.",
        group="Features",
    )
    correct: str = _option(
        "none",
        "Correction of differences between sections: none; center, which subtracts each section's mean from its "
        "components; or harmony, which needs the package harmonypy and leaves no model to save.",
        group="Features",
    )
    whiten: bool = _option(
        True,
        "Rotate and scale the features so that the noise within domains has the same variance in all directions.",
        group="Features",
    )

    detrend: bool = _option(
        True,
        f"With {option('states')}, subtract the trends that all states share: how features change with the counts of a "
        "spot and along its section.",
        group="Features",
    )

    init: str | None = _option(
        None,
        "Column of obs with labels to start from, or kmeans for one k-means clustering of the features. Default: the "
        "consensus of the restarts or, where domains share cell states, the result of the search.",
        group="Start",
    )
    n_init: int | None = _option(
        None,
        "Number of Gaussian mixture restarts at each of three smoothing scales. A third as many k-means restarts are "
        "added. Default: 6 where domains share cell states; otherwise 192 up to 781 spots, then fewer (48 at 3,125 "
        f"spots), and 6 from 25,000 spots on or with {option('restarts', 'best')}.",
        group="Start",
    )
    restarts: str = _option(
        "merge",
        "merge fits once, from the consensus of the restarts; best also fits from each restart and keeps the fit with "
        "the lowest objective F.",
        group="Start",
    )

    n_neighbors: int | None = _option(
        None,
        "Number k of neighbours in the mutual k-nearest-neighbour graph of the spots. Default: 10; where domains are "
        "mean profiles of averaged features, as many as these are averaged over if that is fewer, but at least 6.",
        group="Graph",
    )
    flow_neighbors: int = _option(
        100,
        "Number of nearest spots from which the flow direction of a spot, that of the border near it, is computed. "
        f"With {option('states')}, only {option('save_graph', True)} needs flow directions.",
        group="Graph",
    )
    across_sections: bool = _option(
        False,
        "Let averages, edges and patches reach from one section into another. The sections must share one system of "
        "3-D coordinates.",
        group="Graph",
    )
    graph: str | None = _option(
        None,
        "Key in obsp of a graph to use instead, such as spatial_connectivities; its values multiply the edge weights. "
        "Default: the graph is built from the coordinates.",
        group="Graph",
    )
    tau: float = _option(
        1.0,
        "Weight of feature similarity in the edge weights; without effect where domains share cell states.",
        group="Graph",
    )
    anisotropy: float = _option(
        0.8,
        f"With {option('states')}, how much the weight of an edge depends on its direction: along the layers of the "
        "tissue it is larger by up to this fraction, across them smaller. 0 to 1.",
        group="Graph",
    )
    beta: float = _option(
        1.0, "Potts strength: how strongly neighbouring spots are pulled into the same domain.", group="Model"
    )

    states: int | str = field(
        default="auto",
        metadata={
            "help": "Number of cell states that domains share, 2 to 1,000: a domain is then a composition of states, "
            "and features are fitted without smoothing. auto takes 20 or more, and none where there are too few spots "
            "or molecules, or where features of single spots do not tell states apart; off fits a mean profile of "
            "averaged features for each domain.",
            "group": "Model",
            "type": str,
        },
    )
    search: int | None = _option(
        None,
        f"Rounds of the search for the lowest objective F with {option('states')}. Each proposes changes of the best "
        "domains so far and fits the most promising ones; 0 takes the best of the starts. Default: 10, and 3 from "
        "20,000 spots on, of which a sample is searched.",
        group="Start",
    )

    n_patches: int | None = _option(
        None,
        "Number of patches that the spots are divided into; the solver visits one after the other. Default: "
        "30 for 150,000 spots. The default grows with the cube root of the number of spots, and is multiplied by "
        f"{option('batch_patches')}.",
        group="Patches",
    )
    cross_patch_edges: bool = _option(True, "Keep the edges between spots of different patches.", group="Patches")

    solver: str = _option("p2dvi", f"Algorithm that fits the model, one of {', '.join(SOLVERS)}.", group="Solver")
    batch_patches: int | None = _option(
        None,
        f"Number of patches updated at once ({_OF_BATCHES}). Default: 1.",
        group="Solver",
    )
    inner_rounds: int | None = _option(
        None,
        f"Number of rounds of local updates in each visit of a patch ({_OF_BATCHES}). Default: 3.",
        group="Solver",
    )
    duals: str | None = _option(
        None,
        f"Where dual variables start, one of {', '.join(DUALS)}: at minus the gradient of their patch, or at 0 as in "
        "Algorithm 1 of the paper (p2dvi and pdvi only). Default: gradient.",
        group="Solver",
    )
    step_factor: float | None = _option(
        None,
        "Factor c of the step 1 / (c x curvature); a larger c takes smaller steps (p2dvi and pdvi only). Default: 1.",
        group="Solver",
    )
    step_size: float | None = _option(
        None,
        "Step size of pdvi, svi, svi-rm, pg-svi, sngvi, sgd, rmsprop, adam or cv, or of a p2dvi with one constant step "
        "for each block; it has no unit. Default: that of the solver; for p2dvi, steps that follow the curvature.",
        group="Solver",
    )
    step_mean: float | None = _option(
        None,
        "Fixed step of the means (p2dvi only). Default: computed from the curvature.",
        group="Solver",
    )
    step_log_variance: float | None = _option(
        None,
        "Fixed step of the log variances (p2dvi only). Default: computed from the curvature.",
        group="Solver",
    )
    max_epochs: int = _option(
        500, "Largest number of epochs. In one epoch every patch is visited once on average.", group="Solver"
    )
    tol: float = _option(
        1e-4,
        "Tolerance of convergence: means, log variances, compositions and posteriors must be this close to stationary.",
        group="Solver",
    )
    tol_objective: float = _option(
        1e-7,
        "Convergence also needs the objective to change by at most this in an epoch, relative to half the number of "
        "feature values.",
        group="Solver",
    )
    seed: int = _option(0, "Seed of the random numbers. The same seed gives the same result.", group="Run")

    memory: str | None = _option(
        None,
        "Memory that the fit may use, such as 8GB. Counts that need more are read block by block. Default: all free "
        "memory.",
        group="Run",
    )

    key_added: str = _option("pdvi", "Prefix of the keys that are written.", group="Output")
    save_graph: bool = _option(False, "Also write the edge weights and the flow directions.", group="Output")

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", read_k(self.k))
        object.__setattr__(self, "states", read_states(self.states))
        object.__setattr__(self, "min_counts", read_min_counts(self.min_counts))
        for f in fields(self):
            if f.name not in ("k", "states", "min_counts", "memory"):
                object.__setattr__(self, f.name, read_value(f, getattr(self, f.name)))
        for f in fields(self):
            check_range(f.name, getattr(self, f.name))
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value is not None:
                check_choice(name, value, known)
        if self.memory is not None:
            parse_size(self.memory)
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Raise where two options exclude each other."""
        if isinstance(self.k, str) and self.init is not None:
            raise InputError(
                f"one number with {option('init')}",
                self.k,
                f"Give the number of domains of those labels, or leave {option('init')} out.",
                option="k",
            )
        if self.n_pcs != 0 or self.rep is not None:
            return
        if isinstance(self.states, int):
            raise InputError(
                f"at least 1 with {option('states')}",
                "0",
                "States are learnt from principal components. 0 fits the genes themselves, as "
                f"{option('preset', 'paper')} does: give a number, such as {option('n_pcs', 15)}, or "
                f"leave {option('states')} out.",
                option="n_pcs",
            )
        advice = "Choose another {}, or at least one principal component."
        if self.correct != "none":
            raise InputError(
                f"at least 1 with {option('correct', self.correct)}",
                "0",
                "Genes that are fitted themselves stay sparse, so that nothing can be subtracted from them. "
                + advice.format(option("correct")),
                option="n_pcs",
            )
        if self.transform == "pearson":
            raise InputError(
                f"at least 1 with {option('transform', self.transform)}",
                "0",
                "Pearson residuals are dense, and too large to be fitted gene by gene. "
                + advice.format(option("transform")),
                option="n_pcs",
            )

    @classmethod
    def of_stored(cls, params: Mapping[str, Any], **given: Any) -> "FitOptions":
        """Return the options among the parameters that a fit has stored; those that are given come first.

        Raises
        ------
        InputError
            Where ``k`` is neither stored nor given, or one cannot be used.
        """
        stored = {f.name: params[f.name] for f in fields(cls) if f.name in params}
        return cls(**{"k": None} | stored | given)

    def check_numbers(self, n_spots: int) -> None:
        """Check that there are no more domains, states, patches or neighbours than a section has spots.

        Raises
        ------
        InputError
            Where there are more, or too few spots to choose a number of domains.
        """
        for name in ("k", "states", "n_patches", "smooth", "n_neighbors"):
            value = getattr(self, name)
            if isinstance(value, int) and value > n_spots:
                raise InputError(f"at most the number of spots, {n_spots}", str(value), "Lower it.", option=name)
        if isinstance(self.k, str):
            candidates(self.k, n_spots)  # raises where the range goes beyond the spots

    def components_of(self, k: int) -> int:
        """Return the number of principal components to fit for k domains.

        That is ``n_pcs``, or by default K - 1, the dimensions that K means span, but at least 15.
        """
        return self.n_pcs or max(_LEAST_N_PCS, k - 1)

    @property
    def n_domains(self) -> int:
        """K.

        Raises
        ------
        InputError
            Where ``k`` is a range of numbers.
        """
        if isinstance(self.k, str):
            raise InputError(
                "a single number here",
                self.k,
                f"Give one number; a fit with {option('k', self.k)} recommends one.",
                option="k",
            )
        return self.k


def _parameters() -> str:
    """Return the section "Parameters" of the docstring of `FitOptions`, from the help texts of the options."""
    entries = (f"    {f.name}\n        {in_words(f.metadata['help'], as_argument)}\n" for f in fields(FitOptions))
    return f"    Parameters\n    ----------\n{''.join(entries)}\n"


if FitOptions.__doc__:  # there is none with `python -OO`
    FitOptions.__doc__ = FitOptions.__doc__.replace("    Raises\n", f"{_parameters()}    Raises\n", 1)

_CHOICES = {
    "solver": SOLVERS,
    "totals": TOTALS,
    "transform": TRANSFORMS,
    "restarts": RESTARTS,
    "correct": CORRECTIONS,
    "duals": DUALS,
}

# options that some solvers have and others do not
SOLVER_OPTIONS = (
    "batch_patches",
    "inner_rounds",
    "duals",
    "step_factor",
    "step_size",
    "step_mean",
    "step_log_variance",
)


def option_table() -> list[dict[str, Any]]:
    """Return one row per option, in the order of the help: name, flag, type, whether required, default, help, group."""
    return [
        {
            "name": f.name,
            "flag": as_flag(f.name),
            "type": kind_of(f),
            "required": f.default is MISSING,
            "default": None if f.default is MISSING else f.default,
            **f.metadata,
        }
        for f in fields(FitOptions)
    ]
