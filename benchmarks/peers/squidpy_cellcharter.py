"""Niches of squidpy, flavour cellcharter: a mixture on components of a spot and its neighbours up to three steps away.

The components are in ``X``. With ``use_rep``, squidpy 1.8.3 clusters them without their neighbours, and with genes in
``X`` it makes a dense matrix of spots x 4 genes.
"""

import squidpy as sq
from anndata import AnnData
from common import arguments, components, counts, write
from scipy.sparse import csr_matrix


def main() -> None:
    """Build a Delaunay graph and find niches."""
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
