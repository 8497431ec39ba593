"""Pictures of a fitted section for notebooks: ``spatialpdvi.pl.domains(adata)`` draws what ``spatialpdvi plot`` does.

Every function takes ``ax=``; without it there is a new figure of pyplot's, so that a notebook shows it.
"""

from spatialpdvi.pl.charts import confusion, reliability, scan, trace
from spatialpdvi.pl.maps import agreement, annotation, confidence, domains, edges, entropy, flow

__all__ = [
    "agreement",
    "annotation",
    "confidence",
    "confusion",
    "domains",
    "edges",
    "entropy",
    "flow",
    "reliability",
    "scan",
    "trace",
]
