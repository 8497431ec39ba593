"""A fitted section, or several, as one page of HTML that needs nothing but itself."""

from spatialpdvi.report.content import Gene, MappedGene, Material, genes_to_map
from spatialpdvi.report.layers import MOST_SPOTS
from spatialpdvi.report.page import render

__all__ = ["MOST_SPOTS", "Gene", "MappedGene", "Material", "genes_to_map", "render"]
