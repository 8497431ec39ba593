"""A fitted section as pictures need it."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spatialpdvi.errors import InputError, option, own_names
from spatialpdvi.io.formats.sources import Source
from spatialpdvi.io.results.arrays import read_number, why_missing
from spatialpdvi.io.results.expression import read_gene_counts
from spatialpdvi.io.results.fitted import Fitted
from spatialpdvi.io.results.keys import Keys
from spatialpdvi.io.results.summary import joint_samples, scores_of_fit
from spatialpdvi.io.section.images import TissueImage, read_images
from spatialpdvi.marker_genes import log_normalised
from spatialpdvi.options.validation import read_kind
from spatialpdvi.plotting.charts import Confusion, count_confusion
from spatialpdvi.plotting.labels import Labels, check_labels, choose_colours, printable
from spatialpdvi.plotting.tissue import Tissue, place_tissue

__all__ = ["Genes", "View", "check_alpha"]

_ALPHA = 0.6  # of spots over an image


class Genes(NamedTuple):
    """Genes whose expression is drawn, and where their counts and names are, as for `read_gene_counts`."""

    names: tuple[str, ...] = ()
    layer: str | None = None
    gene_key: str | None = None


class View:
    """A fitted section as pictures need it; each part is computed when a picture first uses it.

    Parameters
    ----------
    source
        The section.
    keys
        Names under which the fit wrote.
    fitted
        What `spatialpdvi.io.results.fitted.read_fitted` read of it.
    room
        Width and height in inches that maps have to fit into; by default they are as large as suits a page.
    calibrated
        Whether to show the calibrated confidence if the fit wrote one.
    image
        Whether maps are drawn over the image of the tissue.
    alpha
        Of the spots on these maps, above 0 and at most 1; None for 0.6.
    genes
        Those that maps show.

    Raises
    ------
    InputError
        If ``alpha`` is out of its range, or there is no image under the spots.
    """

    def __init__(
        self,
        source: Source,
        keys: Keys,
        fitted: Fitted,
        *,
        room: tuple[float, float] | None = None,
        calibrated: bool = True,
        image: bool = False,
        alpha: float | None = None,
        genes: Genes | None = None,
    ) -> None:
        check_alpha(alpha, image=image)
        self.source, self.keys, self.fitted, self.room = source, keys, fitted, room
        self.image, self.alpha, self.genes = image, _ALPHA if alpha is None else alpha, genes or Genes()
        self.calibrated = fitted.calibrated if calibrated else None

    @property
    def coordinates(self) -> NDArray[np.float64]:
        """Coordinates of the spots, (n, 2) or (n, 3)."""
        if self.fitted.coordinates is None:
            msg = "a map needs coordinates: read them with the fit"
            raise ValueError(msg)
        return self.fitted.coordinates

    @property
    def tissue(self) -> Tissue:
        """The sections and their maps, over their images if these are wanted."""
        return self.pictured if self.image else self.placed

    @cached_property
    def images(self) -> dict[str, TissueImage]:
        """The image of each section, by its name."""
        with own_names({} if self.image else {"image": None}):  # nothing else could be drawn without it
            fitted = self.fitted
            others = joint_samples(scores_of_fit(fitted.summary)) if fitted.section is not None else []
            found = read_images(self.source, fitted.samples, section=fitted.section, fitted=others)
        return {printable(name): image for name, image in found.items()}

    @cached_property
    def pictured(self) -> Tissue:
        """The sections over their images."""
        return self.placed.over_images(self.images, alpha=self.alpha)

    @cached_property
    def placed(self) -> Tissue:
        """The sections and their maps, on white."""
        tissue = place_tissue(self.coordinates[:, :2], self.fitted.samples)
        return tissue if self.room is None else tissue.within(self.room)

    @cached_property
    def domains(self) -> Labels:
        """The domain of each spot."""
        return check_labels(self.fitted.domains, n=len(self.fitted.domains), what="domains")

    @cached_property
    def annotation(self) -> Labels:
        """The known label of each spot."""
        if self.fitted.annotation is None:
            raise InputError(
                f"known labels in {self.source.name}",
                "no annotation",
                f"Name a column of obs that holds labels by {option('label_key')}.",
            )
        return check_labels(self.fitted.annotation, n=len(self.domains.codes), what="labels")

    @cached_property
    def confusion(self) -> Confusion:
        """Spots by domain and label."""
        return count_confusion(self.domains, self.annotation)

    @cached_property
    def colours(self) -> tuple[list[str], list[str]]:
        """Colours of the domains and of the labels (none without an annotation)."""
        fitted = self.fitted
        labels = None if fitted.annotation is None else self.annotation
        return choose_colours(self.domains, labels, colours=fitted.colours, label_colours=fitted.label_colours)

    @cached_property
    def expression(self) -> dict[str, NDArray[np.float64]]:
        """The expression of each gene, (n,): log(1 + counts per 10,000)."""
        names, *where = self.genes
        found = read_gene_counts(self.source, self.keys, names, layer=where[0], gene_key=where[1])
        return dict(zip(names, log_normalised(*found).T, strict=True))

    def number(self, key: str, otherwise: str) -> NDArray[np.float64]:
        """Return a column of ``obs`` that a fit wrote, (n,), or raise an error that ends with the advice given."""
        return read_number(self.source, key, otherwise=why_missing(self.source, self.keys, otherwise))


def check_alpha(alpha: float | None, *, image: bool) -> None:
    """Raise an `InputError` where the opacity of spots over an image is out of its range, or there is no image."""
    if alpha is not None and not 0 < read_kind("alpha", alpha, float) <= 1:
        raise InputError("above 0 and at most 1", f"{alpha}", "Give 0.6, for example.", option="alpha")
    if alpha is not None and not image:
        advice = f"Leave {option('alpha')} out: spots are opaque where no image is below them."
        raise InputError(f"{option('image')} with {option('alpha')}", "none", advice)
