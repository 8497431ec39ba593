"""The simulated section: its shape, its organs, its counts, and its bits."""

import hashlib
import re
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from spatialpdvi.errors import InputError
from spatialpdvi.synthetic import expression, simulate, simulate_file
from spatialpdvi.synthetic import section as making
from spatialpdvi.synthetic.cells import draw_cells
from spatialpdvi.synthetic.tissue import draw_tissue
from spatialpdvi.synthetic.truth import simulation_truth

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def section():
    return simulate(n_spots=3000, n_genes=2000, k=20, seed=0, easy=True)


@pytest.fixture(scope="module")
def mixed():
    return simulate(n_spots=4000, n_genes=2000, k=12, seed=0, background=300)


def touching(coordinates, spacing):
    """Pairs of bins that share a side or a corner."""
    return cKDTree(coordinates).query_pairs(1.5 * spacing, output_type="ndarray")


def largest_share(members, pairs, n):
    """Share of the members in their largest connected component."""
    inside = pairs[members[pairs].all(axis=1)]
    graph = coo_array((np.ones(len(inside)), inside.T), shape=(n, n))
    _, component = connected_components(graph, directed=False)
    return np.bincount(component[members]).max() / members.sum()


def test_what_is_in_it(section):
    assert section.shape == (3000, 2000)
    assert section.X.format == "csr"
    assert section.X.dtype == np.float32
    assert section.X.has_canonical_format
    assert section.X.data.min() >= 1
    assert (section.X.data % 1 == 0).all()
    assert (section.X.getnnz(axis=1) > 0).all()
    assert section.obs_names.is_unique
    assert section.obs_names.str.fullmatch(r"\d+_\d+-0").all()
    assert section.var_names[[0, -1]].tolist() == ["gene00001", "gene02000"]
    assert section.uns["simulation"] == {
        "n_spots": 3000,
        "n_genes": 2000,
        "k": 20,
        "seed": 0,
        "spacing": 25.0,
        "depth": pytest.approx(2300 * 0.25**0.2),
        "signal": 1.0,
        "easy": True,
        "background": 0,
    }


def test_coordinates_are_bins_times_spacing(section):
    coordinates = section.obsm["spatial"]
    assert coordinates.dtype == np.float64
    bins = np.array([name[:-2].split("_") for name in section.obs_names], dtype=int)
    np.testing.assert_array_equal(coordinates, bins * 25.0)
    assert bins.min(axis=0).tolist() == [0, 0]
    wide = simulate(n_spots=100, n_genes=20, k=3, seed=0, spacing=0.7)
    assert cKDTree(wide.obsm["spatial"]).query(wide.obsm["spatial"], k=[2])[0].min() == (pytest.approx(0.7))


def test_the_outline_is_an_embryo(section):
    coordinates = section.obsm["spatial"]
    pairs = touching(coordinates, 25)
    assert largest_share(np.ones(3000, dtype=bool), pairs, 3000) == 1
    width, height = np.ptp(coordinates, axis=0)
    assert height > 1.5 * width
    # No ellipse: limbs, tail and the notch of the neck leave much of its bounding box free.
    assert 3000 * 25**2 / (width * height) < 0.7
    head = coordinates[section.obs["annotation"] == "brain"].mean(axis=0)
    tail = coordinates[section.obs["annotation"] == "tail"].mean(axis=0)
    assert head[1] < 0.35 * height < 0.85 * height < tail[1]  # y points down


@pytest.mark.parametrize(("n_spots", "k", "seed"), [(60, 4, 0), (60, 4, 1), (1000, 8, 2), (2500, 33, 3)])
def test_every_domain_is_there_and_in_one_piece(n_spots, k, seed):
    adata = simulate(n_spots=n_spots, n_genes=20, k=k, seed=seed, easy=True)
    assert adata.n_obs == n_spots
    annotation = adata.obs["annotation"].cat
    assert len(annotation.categories) == k
    sizes = np.bincount(annotation.codes, minlength=k)
    assert sizes.min() > 0
    assert sizes.max() > 1.3 * np.median(sizes)
    pairs = touching(adata.obsm["spatial"], 25)
    in_one = [largest_share(annotation.codes.to_numpy() == c, pairs, n_spots) for c in range(k)]
    assert np.average(in_one, weights=sizes) > 0.9


@pytest.mark.parametrize("k", [2, 17, 40])
def test_as_many_domains_as_spots(k):
    adata = simulate(n_spots=k, n_genes=20, k=k, seed=5)
    assert adata.obs["annotation"].value_counts().tolist() == [1] * k


def test_names_of_organs(section):
    assert section.obs["annotation"].cat.categories[:2].tolist() == ["brain", "liver"]
    many = simulate(n_spots=500, n_genes=20, k=23, seed=0)
    names = many.obs["annotation"].cat.categories[19:].tolist()
    assert names == ["pancreas", "organ 21", "organ 22", "organ 23"]


def test_same_seed_same_bits(section):
    again = simulate(n_spots=3000, n_genes=2000, k=20, seed=0, easy=True)
    for ours, theirs in (
        (again.X.data, section.X.data),
        (again.X.indices, section.X.indices),
        (again.obsm["spatial"], section.obsm["spatial"]),
        (again.obs["annotation"].cat.codes, section.obs["annotation"].cat.codes),
    ):
        np.testing.assert_array_equal(ours, theirs)
    other = simulate(n_spots=3000, n_genes=2000, k=20, seed=1, easy=True)
    assert (other.X != section.X).nnz > 0
    assert (other.obs["annotation"].cat.codes.to_numpy() != (section.obs["annotation"].cat.codes.to_numpy())).any()


def test_depth_is_that_of_a_real_section():
    adata = simulate(n_spots=800, n_genes=8000, k=5, seed=3)
    assert adata.X.getnnz(axis=1).mean() == pytest.approx(600, rel=0.1)
    total = adata.X.sum(axis=1).A1
    assert total.mean() == pytest.approx(2300, rel=0.05)
    assert 0.3 < np.log(total).std() < 0.6
    shallow = simulate(n_spots=800, n_genes=8000, k=5, seed=3, depth=100)
    assert shallow.X.sum(axis=1).mean() == pytest.approx(100, rel=0.03)


def test_genes_are_heavy_tailed_and_overdispersed(section):
    mean = section.X.mean(axis=0).A1
    assert mean.max() > 100 * np.median(mean)
    one_organ = section.X[(section.obs["annotation"] == "brain").to_numpy()]
    total = one_organ.sum(axis=1).A1
    common = np.argsort(-mean)[:50]
    counts = one_organ[:, common].toarray()
    expected = total[:, None] * (counts.sum(axis=0) / total.sum())
    # Poisson counts would have a ratio of 1 within an organ.
    assert np.median(((counts - expected) ** 2).sum(axis=0) / expected.sum(axis=0)) > 1.2


def test_depth_varies_smoothly(section):
    log_total = np.log(section.X.sum(axis=1).A1)
    log_total -= log_total.mean()
    _, near = cKDTree(section.obsm["spatial"]).query(section.obsm["spatial"], k=2)
    moran = (log_total * log_total[near[:, 1]]).mean() / log_total.var()
    assert 0.1 < moran < 0.6


def organ_signal(adata):
    """How much closer two halves of an organ are than two organs, on the log scale."""
    codes = adata.obs["annotation"].cat.codes.to_numpy()
    half = np.arange(adata.n_obs) % 2
    genes = np.argsort(-adata.X.sum(axis=0).A1)[:300]
    profile = np.array(
        [[adata.X[(codes == c) & (half == h)][:, genes].sum(axis=0).A1 + 1 for c in range(5)] for h in (0, 1)]
    )
    log = np.log(profile / profile.sum(axis=2, keepdims=True))
    distance = np.linalg.norm(log[0][:, None] - log[1][None], axis=2)
    return distance[~np.eye(5, dtype=bool)].mean() / distance.diagonal().mean()


def test_organs_differ_and_signal_scales_it():
    strong, none = (
        simulate(n_spots=1500, n_genes=2000, k=5, seed=0, signal=signal, easy=True) for signal in (1.0, 0.0)
    )
    assert organ_signal(strong) > 2
    # Programmes still differ from place to place.
    assert organ_signal(none) < 1.2


def test_domains_of_tissue_share_states_and_pairs_differ_in_proportions_alone(mixed):
    composition = mixed.uns["simulation"]["composition"]
    assert composition.shape[0] == 12
    np.testing.assert_allclose(composition.sum(axis=1), 1.0)
    assert ((composition > 0).sum(axis=0) >= 3).all()  # no state is one domain's own
    has = composition > 0
    alike = [(a, b) for a in range(12) for b in range(a) if (has[a] == has[b]).all()]
    assert 2 <= len(alike) <= 3  # a third of at most six pairs, and hardly any by chance
    for a, b in alike:
        assert 0.5 * np.abs(composition[a] - composition[b]).sum() > 0.2


def test_skin_and_layers_are_thin_and_lie_in_order(mixed):
    tissue = mixed[mixed.obs["in_tissue"] == 1]
    annotation, coordinates = tissue.obs["annotation"], tissue.obsm["spatial"]
    layers = [name for name in annotation.cat.categories if "layer" in name]
    assert len(layers) == 4
    assert len({name.split(" layer")[0] for name in layers}) == 2
    outside = cKDTree(mixed[mixed.obs["in_tissue"] == 0].obsm["spatial"])
    depth = outside.query(coordinates)[0]
    assert np.median(depth[annotation == "skin"]) <= 2 * 25
    organ = layers[0].split(" layer")[0]
    own = annotation.isin([organ, f"{organ} layer 1", f"{organ} layer 2"]).to_numpy()
    inward = cKDTree(coordinates[~own]).query(coordinates)[0]
    mean = [inward[annotation == name].mean() for name in (f"{organ} layer 1", f"{organ} layer 2", organ)]
    assert mean[0] < mean[1] < mean[2]


@pytest.mark.parametrize(("n_spots", "k"), [(240, 6), (1500, 8), (3000, 15), (5000, 8)])
def test_every_domain_of_a_layered_section_has_spots_where_bins_are_large(n_spots, k):
    from spatialpdvi.synthetic.tissue import draw_tissue

    tissue = draw_tissue(n_spots, k, np.random.default_rng(0), layered=True, n_background=0)
    assert np.bincount(tissue.domain, minlength=k).min() >= 15


def test_spots_off_the_tissue_have_few_counts_and_no_annotation(mixed):
    outside = (mixed.obs["in_tissue"] == 0).to_numpy()
    assert outside.sum() == 300
    assert (mixed.obs["annotation"].isna() == outside).all()
    total = mixed.X.sum(axis=1).A1
    assert np.median(total[outside]) < 0.02 * np.median(total[~outside])
    to_tissue = cKDTree(mixed.obsm["spatial"][~outside]).query(mixed.obsm["spatial"][outside])[0]
    assert to_tissue.max() < 4 * 25  # around the tissue, and not in it


def test_a_tenth_of_molecules_come_from_neighbouring_bins():
    from spatialpdvi.synthetic.cells import draw_cells, draw_compositions
    from spatialpdvi.synthetic.tissue import draw_tissue

    rng = np.random.default_rng(0)
    tissue = draw_tissue(1500, 8, rng, layered=True, n_background=0)
    cells = draw_cells(tissue, draw_compositions(tissue, rng), rng)
    rows, columns = cells.leak.rows(slice(0, 1500))
    assert (columns.start, columns.stop) == (0, 1500)
    leak = rows.toarray()
    np.testing.assert_allclose(leak.sum(axis=0), 1.0)  # no molecule is lost
    np.testing.assert_allclose(leak.diagonal(), 0.9)
    rows, columns = np.nonzero(leak - np.diag(leak.diagonal()))
    assert np.abs(tissue.bins[rows] - tissue.bins[columns]).max() == 1
    share = cells.share(slice(0, 1500))
    np.testing.assert_allclose(share.sum(axis=1), 1.0)
    some, columns = cells.leak.rows(slice(700, 900))
    np.testing.assert_array_equal(some.toarray(), leak[700:900, columns])
    assert leak[700:900, columns].sum() == pytest.approx(leak[700:900].sum(), rel=1e-12)
    n_states = (share > 0).sum(axis=1)
    assert n_states.max() <= 4
    assert 1.5 < n_states.mean() < 2.5


def test_room_off_the_tissue_is_limited():
    with pytest.raises(InputError, match="spots off the tissue, found 100,000"):
        simulate(n_spots=100, n_genes=20, k=3, background=100_000)


def test_drawing_in_blocks_loses_nothing(monkeypatch):
    monkeypatch.setattr("spatialpdvi.synthetic.expression._BLOCK_BURSTS", 3000)
    adata = simulate(n_spots=200, n_genes=400, k=4, seed=0)
    assert adata.n_obs == 200
    assert adata.X.sum() / 200 == pytest.approx(2300 * 0.05**0.2, rel=0.05)
    assert (adata.X.sum(axis=1) > 0).all()


@pytest.mark.parametrize("choices", [{}, {"easy": True}, {"background": 500}])
def test_the_bits_do_not_depend_on_the_size_of_blocks(monkeypatch, choices):
    whole = simulate(n_spots=3000, n_genes=50, k=12, seed=3, **choices)
    for name in ("tissue._BLOCK", "cells._BLOCK", "expression._BLOCK_SPOTS", "section._BLOCK"):
        monkeypatch.setattr(f"spatialpdvi.synthetic.{name}", 257)
    parts = simulate(n_spots=3000, n_genes=50, k=12, seed=3, **choices)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(parts.X, part), getattr(whole.X, part))
    np.testing.assert_array_equal(parts.obsm["spatial"], whole.obsm["spatial"])
    pd.testing.assert_frame_equal(parts.obs, whole.obs)


@pytest.mark.parametrize(
    ("seed", "digest"),
    [
        (0, "bc395bec9f722ad96bab00f4ec450d2bce780e5b877d79c9eec04d9704937816"),
        (1, "6f762770bedad6952ec90102e543a6b2384ed7239c1dc4750ec57d481da55fc6"),
    ],
)
def test_the_bits_are_those_of_earlier_versions(seed, digest):
    adata = simulate(n_spots=1500, n_genes=50, k=8, seed=seed, background=40)
    parts = (adata.X.data, adata.X.indices, adata.obsm["spatial"], adata.obs["annotation"].cat.codes.to_numpy())
    found = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
    assert found == digest


def test_memory_of_a_large_section(tmp_path):
    n_spots = 300_000
    tracemalloc.start()
    simulate_file(tmp_path / "embryo.h5ad", n_spots=n_spots, n_genes=50, k=20, depth=30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # beside 4,000,000 bursts and blocks of spots, which do not grow; with all shares in memory it was 560 MB
    assert peak < 250_000_000 + 300 * n_spots


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"k": 1}, "Expected `k` to be at least 2, found 1."),
        (
            {"n_spots": 5, "k": 6},
            "Expected at least one spot per domain, found 5 spots for 6 domains. Raise `n_spots` or lower `k`.",
        ),
        ({"n_genes": 19}, "Expected `n_genes` to be at least 20, found 19."),
        ({"spacing": 0.0}, "Expected `spacing` to be a finite number above 0, found 0.0."),
        ({"depth": np.inf}, "Expected `depth` to be a finite number above 0, found inf."),
        ({"signal": -1}, "Expected `signal` to be a finite number of at least 0, found -1. The usual contrast is 1."),
        ({"background": -1}, "Expected `background` to be at least 0, found -1."),
        ({"n_spots": 2e4}, "Expected `n_spots` to be a whole number, found 20000.0."),
        ({"n_spots": "400"}, "Expected `n_spots` to be a whole number, found '400'."),
        ({"k": 3.0}, "Expected `k` to be a whole number, found 3.0."),
        ({"depth": "deep"}, "Expected `depth` to be a number, found 'deep'."),
        ({"easy": 1}, "Expected `easy` to be True or False, found 1."),
        ({"seed": -1}, "Expected `seed` to be a whole number from 0 to 4294967295, found -1."),
    ],
)
def test_wrong_sizes(wrong, sentence):
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        simulate(**wrong)


@pytest.mark.parametrize("ending", [".h5ad", ".zarr"])
@pytest.mark.parametrize("choices", [{}, {"easy": True}, {"background": 30}])
def test_a_file_holds_what_is_simulated_in_memory(tmp_path, monkeypatch, ending, choices):
    monkeypatch.setattr(expression, "_BLOCK_BURSTS", 20_000)
    adata = simulate(n_spots=100, n_genes=50, k=4, seed=0, **choices)
    path = tmp_path / f"embryo{ending}"
    if ending == ".h5ad":
        path.write_bytes(b"old")
    n_spots, n_values = simulate_file(path, n_spots=100, n_genes=50, k=4, seed=0, **choices)
    assert (n_spots, n_values) == (adata.n_obs, adata.X.nnz)
    read = ad.read_h5ad(path) if ending == ".h5ad" else ad.read_zarr(path)
    assert read.X.has_canonical_format
    assert read.X.dtype == np.float32
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(read.X, part), getattr(adata.X, part))
    pd.testing.assert_frame_equal(read.obs, adata.obs, check_column_type=False)
    assert read.var_names.equals(adata.var_names)
    np.testing.assert_array_equal(read.obsm["spatial"], adata.obsm["spatial"])
    written, expected = dict(read.uns["simulation"]), dict(adata.uns["simulation"])
    np.testing.assert_array_equal(written.pop("composition", 0), expected.pop("composition", 0))
    assert written == expected
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "append_counts", None)
    path = tmp_path / "embryo.h5ad"
    path.write_bytes(b"old")
    with pytest.raises(TypeError, match="not callable"):
        simulate_file(path, n_spots=20, n_genes=20, k=2)
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_the_folder_must_exist(tmp_path):
    path = tmp_path / "no" / "embryo.h5ad"
    sentence = f"Expected the folder of '{path}' to exist, found no '{path.parent}'. Create it, or choose another path."
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        simulate_file(path, n_spots=20, n_genes=20, k=2)


@pytest.mark.parametrize("name", ["embryo.txt", "embryo"])
def test_the_path_must_end_as_its_format_does(name, tmp_path, monkeypatch):
    monkeypatch.setattr(making, "draw_section", None)  # refused before any work
    path = tmp_path / name
    sentence = (
        f"Expected a path that ends in .h5ad or .zarr, found '{path}'. "
        "Its ending sets the format; give it one of these."
    )
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        simulate_file(path, n_spots=20, n_genes=20, k=2)
    assert list(tmp_path.iterdir()) == []


def test_no_other_run_may_write_there_from_the_first_draw_on(tmp_path, monkeypatch):
    path, refused = tmp_path / "embryo.h5ad", []

    def draw(options, draw=making.draw_section):
        with ThreadPoolExecutor(1) as other:  # another thread is refused as another process is
            refused.append(other.submit(simulate_file, path, n_spots=20, n_genes=20, k=2).exception())
        return draw(options)

    monkeypatch.setattr(making, "draw_section", draw)
    simulate_file(path, n_spots=20, n_genes=20, k=2)
    assert [type(error) for error in refused] == [InputError]
    assert "another run at work on it" in str(refused[0])
    assert [file.name for file in tmp_path.iterdir()] == ["embryo.h5ad"]


def test_seeds_that_do_not_fit(monkeypatch):
    monkeypatch.setattr(making, "draw_tissue", None)  # refused before any work
    sentence = "Expected `seed` to be a whole number from 0 to 4294967295, found 4294967296."
    with pytest.raises(InputError, match=f"^{re.escape(sentence)}$"):
        simulate(n_spots=60, n_genes=20, k=3, seed=2**32)


@pytest.mark.parametrize("easy", [True, False])
def test_the_truth_is_what_the_counts_are_on_average(easy):
    arguments = {"n_spots": 1500, "n_genes": 60, "k": 6, "seed": 5, "easy": easy}
    section, truth = simulate(**arguments), simulation_truth(**arguments)
    counts = section.X.toarray()
    np.testing.assert_allclose(counts.sum(axis=0), truth.spot_rate.sum(axis=0), rtol=0.2, atol=40)
    assert counts.sum() == pytest.approx(truth.spot_rate.sum(), rel=0.02)
    domain = section.obs["annotation"].cat.codes.to_numpy()
    for k in range(6):
        rate = truth.spot_rate[domain == k].sum(axis=0)
        np.testing.assert_allclose(truth.section_mean[k], 1e4 * rate / rate.sum())
    for mean in (truth.section_mean, truth.expected_mean):
        np.testing.assert_allclose(mean.sum(axis=1), 1e4)
    # other sections like this one differ from it by their gradients and cells alone
    change = np.log(truth.expected_mean / truth.section_mean)[np.bincount(domain) > 100]
    assert 0.0 < np.abs(change).mean() < 0.1
    np.testing.assert_allclose(truth.composition.sum(axis=1), 1.0)
    for k in np.flatnonzero(np.bincount(domain) > 200):
        own = truth.cell_share[domain == k].mean(axis=0)
        np.testing.assert_allclose(own, truth.composition[k], atol=0.08)


def test_an_expectation_over_more_sections_is_another_one_and_the_section_stays():
    few, more = (simulation_truth(n_spots=100, n_genes=40, k=4, n_sections=n) for n in (1, 2))
    assert np.abs(few.expected_mean - more.expected_mean).max() > 1.0
    np.testing.assert_array_equal(few.section_mean, more.section_mean)


def test_every_section_counts_in_the_expectation():
    """One more of twenty moves it far less than one more of one."""
    shape = {"n_spots": 300, "n_genes": 60, "k": 3, "seed": 1}
    found = {n: simulation_truth(n_sections=n, **shape).expected_mean for n in (1, 2, 20, 21)}
    first, later = (np.abs(found[n + 1] - found[n]).mean() for n in (1, 20))
    assert later < 0.3 * first


def test_a_bin_with_none_around_it_keeps_its_molecules():
    rng = np.random.default_rng(0)
    tissue = draw_tissue(60, 2, rng, layered=False, n_background=0)
    apart = tissue._replace(bins=3 * tissue.bins)
    leaks = [draw_cells(one, np.full((2, 4), 0.25), rng).leak for one in (tissue, apart)]
    assert leaks[0].stays.min() == 0.9
    assert (leaks[1].stays == 1.0).all()


def test_as_many_spots_off_the_tissue_as_there_is_room_for_are_drawn():
    arguments = {"n_spots": 60, "n_genes": 20, "k": 2, "easy": True}
    with pytest.raises(InputError, match="spots off the tissue") as caught:
        simulate(**arguments, background=100_000)
    (room,) = map(int, re.findall(r"at most ([\d,]+) spots", str(caught.value).replace(",", "")))
    assert simulate(**arguments, background=room).n_obs == 60 + room


@pytest.mark.parametrize(("name", "leads_to"), [("a.zarr", "store"), ("b.h5ad", "data.bin")])
def test_a_link_says_by_its_own_name_what_is_written(tmp_path, name, leads_to):
    (tmp_path / name).symlink_to(tmp_path / leads_to)
    simulate_file(tmp_path / name, n_spots=30, n_genes=20, k=2, easy=True)
    assert (tmp_path / leads_to).is_dir() == name.endswith(".zarr")
    read = ad.read_zarr if name.endswith(".zarr") else ad.read_h5ad
    assert read(tmp_path / name).n_obs == 30
    assert (tmp_path / name).is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, leads_to])
