"""Principal components averaged over a spot and its 25 nearest spots, then k-means with 10 starts."""

import numpy as np
from common import arguments, components, counts, write
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

NEAREST = 25


def main() -> None:
    """Average the components and cluster them."""
    given = arguments()
    section = counts(given.section)
    spatial = np.asarray(section.obsm["spatial"])
    features = components(section, seed=given.seed)
    nearest = NearestNeighbors(n_neighbors=NEAREST + 1, n_jobs=-1).fit(spatial).kneighbors(return_distance=False)
    mean = (features + sum(features[column] for column in nearest.T)) / (1 + nearest.shape[1])
    write(KMeans(given.k, n_init=10, random_state=given.seed).fit_predict(mean), given.labels)


if __name__ == "__main__":
    main()
