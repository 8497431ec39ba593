"""A domain has one colour wherever it is drawn, and those that touch in space are told apart."""

import itertools

import anndata as ad
import numpy as np
import pytest
from click.testing import CliRunner
from figures import lattice, legend_colours, panels

import spatialpdvi
from spatialpdvi import FitOptions, InputError, fit_files
from spatialpdvi.cli import main
from spatialpdvi.palette import UNLABELLED, border_lengths, domain_colours, further_colours, palette
from spatialpdvi.plotting.labels import match_colours

OPTIONS = {"n_top_genes": 100, "n_init": 1}


def distances(colours):
    from spatialpdvi.palette import _distance, _oklab, _rgb

    place = _oklab(np.array([_rgb(colour) for colour in colours]))
    return _distance(place[:, None], place)


def test_borders_are_pairs_of_neighbours_within_a_section():
    points = lattice(10, 8)
    domains = (points[:, 0] >= 5).astype(int) + 2 * (points[:, 0] >= 8)
    one = border_lengths(domains, points, 4, samples=[np.arange(80)])
    assert one.shape == (4, 4)
    assert (one == one.T).all()
    assert min(one[0, 1], one[1, 3]) > 0
    assert one[0, 3] == one[0, 2] == one[1, 1] == 0
    two = border_lengths(np.tile(domains, 2), np.tile(points, (2, 1)), 4, samples=[np.arange(80), 80 + np.arange(80)])
    np.testing.assert_array_equal(two, 2 * one)
    line = np.column_stack([np.arange(20.0), np.zeros(20)])
    across = border_lengths((line[:, 0] >= 10).astype(int), line, 2, samples=[np.arange(20)])
    # the six nearest are three on each side: six pairs, each from both its ends, and in both orders of the domains
    np.testing.assert_array_equal(across, [[0, 12], [12, 0]])


@pytest.mark.parametrize("k", [2, 7, 20, 33])
def test_neighbouring_domains_are_farther_apart_than_in_the_palettes_order(k):
    rng = np.random.default_rng(k)
    points = lattice(40, 40)
    seeds = rng.random((k, 2)) * 40
    domains = np.argmin(((points[:, None] - seeds) ** 2).sum(axis=2), axis=1)
    length = border_lengths(domains, points, k, samples=[np.arange(1600)])
    dealt = domain_colours(length)
    assert sorted(dealt) == sorted(palette(k))
    touching = length > 0
    before, after = (distances(colours)[touching] for colours in (palette(k), dealt))
    assert after.min() >= before.min()
    assert after.mean() >= before.mean()
    if k >= 20:
        assert after.min() > 1.3 * before.min()
    assert domain_colours(length) == dealt


def test_no_exchange_of_two_colours_lowers_the_sum_over_shares_of_borders():
    length = np.triu(np.random.default_rng(0).gamma(0.3, 100, size=(9, 9)), 1)
    length += length.T
    share = length / length.sum(axis=1, keepdims=True)

    def total(colours):
        return ((share + share.T) / (distances(colours) ** 2 + 1e-4))[~np.eye(9, dtype=bool)].sum()

    dealt = list(domain_colours(length))
    for a, b in itertools.combinations(range(9), 2):
        exchanged = dealt.copy()
        exchanged[a], exchanged[b] = dealt[b], dealt[a]
        assert total(exchanged) > total(dealt) - 1e-6


def test_domains_without_a_border_have_colours_of_their_own():
    assert domain_colours(np.zeros((5, 5))) == palette(5)
    assert len(set(domain_colours(np.zeros((300, 300))))) == 300


def test_further_colours_keep_away_from_those_taken():
    taken = ["#ff0000", "#00ff00"]
    found = further_colours(6, taken=taken)
    apart = distances([*taken, *found, UNLABELLED]) + np.eye(9)
    assert apart.min() > 0.15
    assert further_colours(0, taken=taken) == []


def test_labels_take_the_colours_that_domains_have():
    domains, annotation = np.array([0, 0, 1, 1, 2]), np.array([1, 1, 0, 0, -1])
    of_domains, of_labels = match_colours(domains, np.append(annotation[:4], 2), colours=["red", "#00ff00", "#0000ff"])
    assert of_domains == ["#ff0000", "#00ff00", "#0000ff"]
    assert of_labels == ["#00ff00", "#ff0000", "#0000ff"]
    _, of_labels = match_colours(domains, annotation * 2, colours=["red", "#00ff00", "#0000ff"])
    assert of_labels[0] == "#00ff00"
    assert of_labels[2] == "#ff0000"
    assert of_labels[1] not in of_domains
    (first,) = further_colours(1, taken=())
    _, of_labels = match_colours(domains, annotation * 2, colours=["red", "#00ff00", first])
    assert of_labels[1] not in ("#ff0000", "#00ff00", first)


def test_a_domain_without_a_label_has_none_of_the_colours_that_the_labels_have():
    (first,) = further_colours(1, taken=())
    of_domains, of_labels = match_colours(np.array([0, 1, 2]), np.array([1, 0, -1]), label_colours=["red", first])
    assert of_labels == ["#ff0000", first]
    assert of_domains[:2] == [first, "#ff0000"]
    assert of_domains[2] not in of_labels


class TestOfAFit:
    def test_a_file_holds_one_for_each_domain_and_a_second_fit_replaces_them(self, toy_file):
        for k in (5, 4):
            arguments = ["fit", str(toy_file), "--k", str(k), "--n-top-genes", "100", "--n-init", "1"]
            shown = CliRunner().invoke(main, arguments)
            assert shown.exit_code == 0, shown.output
            written = ad.read_h5ad(toy_file)
            assert sorted(written.uns["pdvi_domain_colors"]) == sorted(palette(k))
            assert len(written.obs["pdvi_domain"].cat.categories) == k

    def test_they_follow_the_prefix(self, toy_section):
        section = toy_section.copy()
        spatialpdvi.fit(section, k=3, rep="X_pca", n_init=1, key_added="mine")
        assert len(section.uns["mine_domain_colors"]) == 3
        assert "pdvi_domain_colors" not in section.uns

    def test_somebody_elses_are_not_replaced(self, toy_section):
        section = toy_section.copy()
        section.uns["pdvi_domain_colors"] = ["red", "blue"]
        with pytest.raises(InputError, match=r"to be free, found uns\['pdvi_domain_colors'\]"):
            spatialpdvi.fit(section, k=3, rep="X_pca", n_init=1)
        assert section.uns["pdvi_domain_colors"] == ["red", "blue"]

    @pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")  # scanpy's own
    def test_scanpy_takes_them_as_they_are(self, toy_section):
        import scanpy as sc
        from matplotlib import pyplot as plt
        from matplotlib.colors import to_hex

        section = toy_section.copy()
        spatialpdvi.fit(section, k=4, rep="X_pca", n_init=1)
        stored = np.array(section.uns["pdvi_domain_colors"])
        axes = sc.pl.embedding(section, basis="spatial", color="pdvi_domain", sort_order=False, show=False)
        drawn = [to_hex(colour) for colour in axes.collections[0].get_facecolors()]
        plt.close(axes.figure)
        assert drawn == list(stored[section.obs["pdvi_domain"].cat.codes])
        assert list(section.uns["pdvi_domain_colors"]) == list(stored)

    def test_all_files_of_a_fit_and_its_predictions_have_the_same(self, toy_section, tmp_path):
        x = toy_section.obsm["spatial"][:, 0]
        paths = [tmp_path / "left.h5ad", tmp_path / "right.h5ad"]
        toy_section[x < np.median(x)].copy().write_h5ad(paths[0])
        toy_section[x >= np.median(x)].copy().write_h5ad(paths[1])
        result = fit_files(paths, FitOptions(k=4, **OPTIONS))
        spatialpdvi.save_model(result, tmp_path / "model.npz")
        new = toy_section.copy()
        spatialpdvi.predict(new, model=tmp_path / "model.npz")
        for one in (*map(ad.read_h5ad, paths), new):
            assert list(one.uns["pdvi_domain_colors"]) == list(result.colours)


class TestPlot:
    @pytest.fixture
    def fitted(self, toy_section, tmp_path):
        section = toy_section.copy()
        spatialpdvi.fit(section, k=4, rep="X_pca", n_init=1)
        return section, tmp_path / "fitted.h5ad"

    def drawn(self, path):
        from spatialpdvi.api import plot_file

        return legend_colours(panels(plot_file(path))["Domains"])

    def test_the_stored_colours_are_drawn(self, fitted):
        from matplotlib.colors import to_rgba

        section, path = fitted
        section.uns["pdvi_domain_colors"] = np.array(["red", "#123456", "#00ff00", "#0000ff"], dtype=object)
        section.write_h5ad(path)
        colours = {name: to_rgba(c) for name, c in zip("0123", section.uns["pdvi_domain_colors"], strict=True)}
        assert self.drawn(path) == colours
        # anndata cuts colours and categories together
        section[section.obs["pdvi_domain"] != "1"].copy().write_h5ad(path)
        del colours["1"]
        assert self.drawn(path) == colours

    def test_without_any_there_are_some(self, fitted):
        section, path = fitted
        del section.uns["pdvi_domain_colors"]
        section.write_h5ad(path)
        assert len(set(self.drawn(path).values())) == 4

    @pytest.mark.parametrize(
        ("colours", "words"),
        [
            (["#000000"], r"a colour for each of the 4 categories .*found 1 values"),
            ([1.0, 2.0, 3.0, 4.0], r"a colour for each of the 4 categories"),
            ("red", r"a colour for each of the 4 categories .*found an object of type str"),
            (["red", "green", "blue", "no colour"], r"Expected a colour for each domain, found 'no colour' for '3'"),
        ],
    )
    def test_what_are_no_colours_is_refused(self, fitted, colours, words):
        section, path = fitted
        section.uns["pdvi_domain_colors"] = colours
        section.write_h5ad(path)
        with pytest.raises(InputError, match=words):
            self.drawn(path)
