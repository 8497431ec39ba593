"""Pictures of a fitted section: an overview, or panels of chosen kinds side by side."""

from spatialpdvi.plotting.save import save_figure
from spatialpdvi.plotting.section import plot_section

__all__ = ["plot_section", "save_figure"]
