"""A fitted section, or several, as one page of HTML that needs nothing but itself."""

from spatialpdvi.report.content import Material
from spatialpdvi.report.page import render
from spatialpdvi.report.reading import ReportOptions, read_material, with_markers

__all__ = ["Material", "ReportOptions", "read_material", "render", "with_markers"]
