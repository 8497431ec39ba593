"""Pictures of a fitted section for notebooks: ``spatialpdvi.pl.domains(adata)`` draws what ``spatialpdvi plot`` does.

Every function takes ``ax=``; without it there is a new figure of pyplot's, so that a notebook shows it.

Examples
--------
>>> import spatialpdvi as spv
>>> from matplotlib import pyplot as plt
>>> figure, (left, right) = plt.subplots(1, 2)
>>> axes = spv.pl.annotation(adata, ax=left)
>>> axes = spv.pl.domains(adata, ax=right)
>>> axes = spv.pl.confidence(adata, calibrated=False)
>>> axes = spv.pl.entropy(adata)
>>> axes = spv.pl.agreement(adata)
>>> axes = spv.pl.flow(adata)  # after fit(..., save_graph=True)
>>> axes = spv.pl.edges(adata)
>>> axes = spv.pl.trace(adata)
>>> axes = spv.pl.confusion(adata, label_key="annotation")
>>> axes = spv.pl.reliability(adata)
>>> axes = spv.pl.scan(scanned)  # after fit(..., k="2:4")
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
