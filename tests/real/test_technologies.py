"""Default settings on one real section of each technology: domains, scores, and the certificate of the written file."""

import pytest
from reference import recompute, stored

from spatialpdvi import FitOptions, fit_file

pytestmark = pytest.mark.slow

# technology -> (file, K, least ARI): a few hundredths below what the fit reaches
SECTIONS = {
    "Visium": ("dlpfc_151673", 7, 0.50),
    "MERFISH": ("merfish_hypothalamus_m0.09", 8, 0.45),
    "STARmap": ("starmap_mpfc_BZ5", 4, 0.80),
    "Stereo-seq": ("stereoseq_drosophila_E14_16h_a_S03", 5, 0.30),
    "seqFISH": ("seqfish_mouse_embryo1_sub20pct", 23, 0.33),
    "Spatial Transcriptomics": ("her2st_H1", 6, 0.40),
}


# imaging panels have fewer genes than --n-top-genes, and some sections have spots that lie apart from the tissue
@pytest.mark.filterwarnings("ignore::spatialpdvi.errors.InputWarning")
@pytest.mark.parametrize("technology", SECTIONS)
def test_a_section_of_each_technology_is_fitted(technology, real_data, tmp_path):
    name, k, floor = SECTIONS[technology]
    path, out = real_data / f"{name}.h5ad", tmp_path / "out.h5ad"
    if not path.exists():
        pytest.skip(f"{name}.h5ad is not among the real sections")
    states = "auto" if technology == "MERFISH" else "off"  # one search: it takes longer than all else
    search = 2 if states == "auto" else None
    result = fit_file(path, FitOptions(k=k, save_graph=True, states=states, search=search), output=out)
    assert result.scores["ari"] >= floor
    assert (result.domain_sizes > 0).sum() == k
    _, fit, x, phi, m, rho, r = stored(out)
    certificate = fit["certificate"]
    assert certificate["converged"]
    for field, value in recompute(fit, x, phi, m, rho, r).items():
        assert certificate[field] == pytest.approx(value, rel=1e-6, abs=1e-7), field
    blocks = ("mean", "log_variance", "posterior")
    assert max(certificate[f"stationarity_{block}"] for block in blocks) < 2 * certificate["tolerance"]
