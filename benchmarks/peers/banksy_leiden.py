"""BANKSY for domains, with the settings of its notebooks: lambda 0.8, 15 neighbours, AGF, 20 components, its Leiden.

The resolution is bisected until there are K domains. The search of BANKSY itself, in steps of 0.05 from 0.6, took five
times as long and ended with another number of domains.
"""

import warnings

import numpy as np
import scanpy as sc
from banksy.embed_banksy import generate_banksy_matrix
from banksy.initialize_banksy import initialize_banksy
from banksy.main import LeidenPartition
from banksy_utils.umap_pca import pca_umap
from common import arguments, counts, select, write

GENES = 2_000
DECAY = "scaled_gaussian"
LAMBDA = 0.8
RESOLUTIONS = (0.05, 3.0)
STEPS = 10


def main() -> None:
    """Compute neighbourhood matrices and a PCA, and cluster by Leiden."""
    warnings.simplefilter("ignore")
    given = arguments()
    section = select(counts(given.section), GENES)
    sc.pp.normalize_total(section)
    plots = dict.fromkeys(("plt_edge_hist", "plt_nbr_weights", "plt_agf_angles", "plt_theta"), False)
    banksy = initialize_banksy(
        section, ("x", "y", "spatial"), num_neighbours=15, nbr_weight_decay=DECAY, max_m=1, **plots
    )
    banksy, matrix = generate_banksy_matrix(section, banksy, [LAMBDA], max_m=1, verbose=False)
    pca_umap(banksy, pca_dims=[20], plt_remaining_var=False, add_umap=False)
    leiden = LeidenPartition(matrix.obsm["reduced_pc_20"], num_nn=50, verbose=False)
    del banksy, matrix, section
    write(_bisected(leiden, given.k, given.seed), given.labels)


def _bisected(leiden: LeidenPartition, k: int, seed: int) -> np.ndarray:
    """Labels of ``k`` domains, or of the nearest number that ten resolutions reach."""
    low, high = np.log(RESOLUTIONS)
    nearest, labels = np.inf, np.empty(0)
    for _ in range(STEPS):
        middle = (low + high) / 2
        found, _ = leiden.partition(resolution=float(np.exp(middle)), n_iterations=-1, seed=seed)
        if abs(found.num_labels - k) < nearest:
            nearest, labels = abs(found.num_labels - k), np.asarray(found.dense)
        if found.num_labels == k:
            break
        low, high = (middle, high) if found.num_labels < k else (low, middle)
    return labels


if __name__ == "__main__":
    main()
