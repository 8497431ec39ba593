"""squidpy's niches, flavour cellcharter: components of a spot and of its neighbours to three steps, then a mixture.

The components stand in ``X``: with ``use_rep`` squidpy 1.8.3 clusters them as they are, without their neighbours, and
with genes in ``X`` it makes a dense matrix of spots x 4 genes.
"""

import squidpy as sq
from anndata import AnnData
from common import arguments, components, counts, write
from scipy.sparse import csr_matrix


def main() -> None:
    """Delaunay graph, then niches."""
    given = arguments()
    section = counts(given.section)
    spatial = section.obsm["spatial"]
    spots = AnnData(csr_matrix(components(section, seed=given.seed)), obsm={"spatial": spatial})
    del section
    sq.gr.spatial_neighbors_delaunay(spots)
    sq.gr.calculate_niche(
        spots, flavor="cellcharter", distance=3, aggregation="mean", n_components=given.k, random_state=given.seed
    )
    write(spots.obs["cellcharter_niche"].to_numpy(), given.labels)


if __name__ == "__main__":
    main()
