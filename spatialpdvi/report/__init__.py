"""A fitted section, or several, as one page of HTML that needs nothing but itself."""

from spatialpdvi.report.content import Gene, Material
from spatialpdvi.report.page import render

__all__ = ["Gene", "Material", "render"]
