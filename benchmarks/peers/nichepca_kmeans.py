"""Embedding of NichePCA (25 neighbours, 30 components, as in its README), then k-means with 10 starts.

By default NichePCA averages genes over neighbours before the PCA. ``--pca-first`` is the other order that it documents.
"""

import nichepca as nc
from common import arguments, counts, write
from sklearn.cluster import KMeans


def main() -> None:
    """Embed the section and cluster it."""
    given = arguments(pca_first="Average components over neighbours instead of genes.")
    section = counts(given.section)
    last = ("pca", "agg") if given.pca_first else ("agg", "pca")
    nc.wf.nichepca(section, knn=25, n_comps=30, pipeline=("norm", "log1p", *last))
    labels = KMeans(given.k, n_init=10, random_state=given.seed).fit_predict(section.obsm["X_npca"])
    write(labels, given.labels)


if __name__ == "__main__":
    main()
