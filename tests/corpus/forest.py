"""What `intervals` is given: results that lack parts or lie, counts that are none, hostile names, odd options."""

from collections.abc import Callable, Iterator
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp

from corpus.cases import HOSTILE, OK, REFUSED, Case, flipped, section
from corpus.pictures import Change, fitted

LINE = ("intervals", "in.h5ad", "-o", "out")
GENE = ("--gene", "gene1")
NEEDED = {"domains", "summary", "confidence", "posteriors", "places", "counts"}
COLUMNS = {
    "expression.csv": ("mean", "lower", "upper"),
    "contrasts.csv": ("log2_fold_change", "lower", "upper"),
    "composition.csv": ("share", "lower", "upper"),
}


def forest_cases() -> Iterator[Case]:
    """All of them."""
    for family in (_parts, _posteriors, _counts, _spots, _names, _options, _outputs, _damage):
        yield from family()


def _with(change: Change = lambda adata: None) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        adata = fitted().copy()
        changed = change(adata)  # an AnnData without spots counts as false
        (adata if changed is None else changed).write_h5ad(folder / "in.h5ad")

    return make


def _case(name: str, make: Callable[[Path], None], codes: frozenset[int], *more: str) -> Case:
    return Case(f"intervals: {name}", make, (*LINE, *more), codes, check=check_tables)


def check_tables(folder: Path) -> None:
    """Each row has an interval about its estimate, or none at all."""
    tables = [path for path in (folder / "out").iterdir() if path.suffix == ".csv"]
    assert (folder / "out" / "expression.csv") in tables
    for path in tables:
        value, low, high = (pd.read_csv(path)[column].to_numpy(float) for column in COLUMNS[path.name])
        there = ~np.isnan(low)
        assert (there == ~np.isnan(high)).all()
        assert np.isfinite(low[there]).all()
        assert np.isfinite(high[there]).all()
        assert (low[there] <= value[there]).all()
        assert (value[there] <= high[there]).all()
    assert (folder / "out" / "intervals.png").read_bytes().startswith(b"\x89PNG")


def _parts() -> Iterator[Case]:
    """Results that lack parts."""

    def bare(folder: Path) -> None:
        section().write_h5ad(folder / "in.h5ad")

    def without(group: str, key: str) -> Change:
        def change(adata: ad.AnnData) -> None:
            del getattr(adata, group)[key]

        return change

    yield _case("a fit", _with(), OK)
    yield _case("a fit and types", _with(), OK, "--by", "annotation")
    yield _case("what was not fitted", bare, REFUSED)
    for name, (group, key) in {
        "domains": ("obs", "pdvi_domain"),
        "confidence": ("obs", "pdvi_confidence"),
        "agreement": ("obs", "pdvi_agreement"),
        "summary": ("uns", "pdvi"),
        "colours": ("uns", "pdvi_domain_colors"),
        "posteriors": ("obsm", "pdvi_posterior"),
        "calibration": ("obsm", "pdvi_posterior_calibrated"),
        "places": ("obsm", "spatial"),
        "graph": ("obsp", "pdvi_connectivities"),
    }.items():
        yield _case(f"without {name}", _with(without(group, key)), REFUSED if name in NEEDED else OK)
    yield _case("linear response", _with(), OK, "--method", "linear-response")
    lost = _with(without("obsp", "pdvi_connectivities"))
    yield _case("linear response without the graph", lost, REFUSED, "--method", "linear-response")
    for name, value in {"a text": "k", "a list": ["k"], "an array": np.zeros(3), "a dict": {"k": 3}}.items():
        changed = _with(lambda a, value=value: a.uns.__setitem__("pdvi", value))
        yield _case(f"the summary is {name}", changed, REFUSED)


def _posteriors() -> Iterator[Case]:
    """Posteriors that are none."""

    def set_to(key: str, value: Callable[[np.ndarray], object]) -> Callable[[Path], None]:
        return _with(lambda adata: adata.obsm.__setitem__(key, value(adata.obsm[key])))

    def one(number: float) -> Callable[[np.ndarray], np.ndarray]:
        def change(phi: np.ndarray) -> np.ndarray:
            phi = phi.copy()
            phi[3, 1] = number
            return phi

        return change

    wrong: dict[str, Callable[[np.ndarray], object]] = {str(number): one(number) for number in (np.nan, np.inf, -1, 7)}
    wrong |= {
        "a column less": lambda phi: phi[:, :-1],
        "a column more": lambda phi: np.c_[phi, phi[:, 0]],
        "zeros": np.zeros_like,
        "texts": lambda phi: pd.DataFrame(phi.astype(str), index=fitted().obs_names, columns=list("abc")),
    }
    for key in ("pdvi_posterior", "pdvi_posterior_calibrated"):
        for name, value in wrong.items():
            yield _case(f"{key} with {name}", set_to(key, value), REFUSED)
        yield _case(f"{key}, sparse", set_to(key, sp.csr_matrix), OK | REFUSED)
    yield _case("a posterior in another order", set_to("pdvi_posterior", lambda phi: phi[:, ::-1].copy()), REFUSED)
    alike = set_to("pdvi_posterior_calibrated", lambda phi: np.full_like(phi, 1 / 3))
    yield _case("a calibrated posterior that knows nothing", alike, OK)


def _counts() -> Iterator[Case]:
    """Counts that are none, and those of which nothing can be said."""

    def put(value: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
        def change(adata: ad.AnnData) -> None:
            adata.X = value(adata.X.toarray().astype(float))

        return _with(change)

    def one(number: float) -> Callable[[np.ndarray], np.ndarray]:
        def change(counts: np.ndarray) -> np.ndarray:
            counts[5, 1] = number
            return counts

        return change

    for number in (np.nan, np.inf, -1.0, 0.5, 1e30):
        yield _case(f"a count of {number}", put(one(number)), REFUSED, *GENE)
    yield _case("logarithms", put(np.log1p), REFUSED)
    yield _case("no counts at all", put(lambda x: 0 * x), REFUSED)
    yield _case("no counts at all, of a gene", put(lambda x: 0 * x), OK, *GENE)
    yield _case("equal counts, which have no markers", put(lambda x: 0 * x + 3), REFUSED)
    yield _case("equal counts, of a gene", put(lambda x: 0 * x + 3), OK, *GENE)
    yield _case("a gene that nothing expresses", put(lambda x: x * (np.arange(24) != 1)), OK, *GENE)
    yield _case(
        "a gene of one spot", put(lambda x: x * ((np.arange(24) != 1) | (np.arange(81) == 7)[:, None])), OK, *GENE
    )
    yield _case("spots without counts", put(lambda x: x * (np.arange(81) % 3 > 0)[:, None]), OK, *GENE)
    empty = put(lambda x: x * (fitted().obs["pdvi_domain"] != "0").to_numpy()[:, None])
    for method in ("blocks", "bootstrap", "mean-field"):
        yield _case(f"a domain without counts: {method}", empty, OK, *GENE, "--method", method)


def _spots() -> Iterator[Case]:
    """Few spots, and places that are none."""
    for n in (0, 1, 2, 3, 20):
        for method in ("blocks", "bootstrap", "mean-field"):
            few = _with(lambda adata, n=n: adata[:n].copy())
            # the first spots are of one domain, and a selection loses the names of the others
            yield _case(f"{n} spots: {method}", few, OK if n > 3 else REFUSED, *GENE, "--method", method)
    places = {
        "all at one place": (np.ones_like, OK),
        "all on a line": (lambda x: x * [1.0, 0.0], OK),
        "in 3-D": (lambda x: np.c_[x, x[:, 0]], OK),
        "in 1-D": (lambda x: x[:, :1], REFUSED),
        "NaN": (lambda x: x * np.nan, REFUSED),
        "infinite": (lambda x: x + np.inf, REFUSED),
    }
    for name, (value, codes) in places.items():
        moved = _with(lambda a, value=value: a.obsm.__setitem__("spatial", value(a.obsm["spatial"])))
        yield _case(f"places {name}", moved, codes, *GENE)

    def domains(values: Callable[[int], object]) -> Callable[[Path], None]:
        return _with(lambda adata: adata.obs.__setitem__("pdvi_domain", pd.Categorical(values(adata.n_obs))))

    yield _case("one domain, of a posterior of three", domains(lambda n: ["0"] * n), REFUSED)
    yield _case("domains that are missing", domains(lambda n: [None] + ["0", "1"] * (n // 2)), REFUSED)
    yield _case("domains that are fractions", domains(lambda n: np.arange(n) % 3 / 2), REFUSED)
    yield _case("domains of other spots", domains(lambda n: [str(i % 3) for i in range(n)]), REFUSED)


def _names() -> Iterator[Case]:
    """Genes, domains and types with hostile names."""
    for number, text in enumerate(HOSTILE):

        def rename(adata: ad.AnnData, text: str = text) -> None:
            adata.var_names = [text, *adata.var_names[1:]]
            for column, old in (("annotation", "b"), ("pdvi_domain", "1")):
                if text.strip() and text not in adata.obs[column].cat.categories:
                    adata.obs[column] = adata.obs[column].cat.rename_categories({old: text})

        named = text.replace("\0", "")
        yield _case(f"name {number}", _with(rename), OK, "--gene", named, "--by", "annotation")
        yield _case(f"column {number}", _with(), REFUSED, "--by", named)
        yield _case(f"contrast {number}", _with(), REFUSED, "--contrast", named)
        yield _case(f"gene key {number}", _with(), REFUSED, "--gene-key", named)
    same = _with(lambda adata: setattr(adata, "var_names", ["gene1"] * adata.n_vars))
    yield _case("genes of one name", same, REFUSED, *GENE)
    yield _case("markers of one name", same, REFUSED)
    for name, value in {
        "numbers": lambda n: np.arange(n) % 4,
        "truths": lambda n: np.arange(n) % 2 == 0,
        "one type": lambda n: pd.Categorical(["a"] * n),
        "a type each": lambda n: pd.Categorical([f"t{i}" for i in range(n)]),
        "some missing": lambda n: pd.Categorical([None if i % 3 else "a" for i in range(n)]),
    }.items():
        put = _with(lambda a, value=value: a.obs.__setitem__("kind", value(a.n_obs)))
        yield _case(f"types that are {name}", put, OK, *GENE, "--by", "kind")
    none = _with(lambda a: a.obs.__setitem__("kind", pd.Categorical([None] * a.n_obs, categories=["a"])))
    yield _case("types all missing", none, OK | REFUSED, *GENE, "--by", "kind")
    fractions = _with(lambda a: a.obs.__setitem__("kind", np.linspace(0, 1, a.n_obs)))
    yield _case("types that are fractions", fractions, REFUSED, *GENE, "--by", "kind")


def _options() -> Iterator[Case]:
    plain = _with()
    for flag, values in {
        "--level": ("0", "1", "-1", "90", "nan", "inf", "1e400", "high"),
        "--n-genes": ("0", "-1", "1.5", "nan"),
        "--seed": ("-1", str(10**20), "x"),
        "--method": ("sandwich", ""),
        "--of": ("cell", "state"),
        "--contrast": ("0", "0,0", "0,9", "0,1,2", ",", ""),
        "--gene": ("nothing", "GENE1", "gene", ""),
        "--by": ("nothing",),
        "--layer": ("nothing",),
        "--spatial-key": ("nothing", "X_pdvi"),
        "--sample-key": ("nothing",),
        "--key-added": ("nothing", "", "a/b"),
        "--memory": ("0", "-1GB", "much"),
        "--counts": ("nowhere.h5ad",),
        "--threads": ("0", "many"),
    }.items():
        for value in values:
            yield _case(f"{flag} {value!r}", plain, REFUSED, flag, value)
    yield _case("a gene twice", plain, REFUSED, *GENE, *GENE)
    yield _case("implicit without what it needs", plain, OK, "--method", "implicit", *GENE)
    for level in ("1e-300", "0.999999"):
        yield _case(f"--level {level}", plain, OK, "--level", level, *GENE)
    yield _case("-n many", plain, OK, "-n", str(10**12))
    yield _case("--memory 1B", plain, OK, "--memory", "1B")


def _outputs() -> Iterator[Case]:
    for name in ("no/out", "in.h5ad", "/dev/full", "x" * 300):
        line = ("intervals", "in.h5ad", *GENE, "-o", name)
        yield Case(f"intervals: output {name[:20]!r}", _with(), line, REFUSED)
    for option in (("--gene", "nothing"), ("--level", "2"), ("--by", "nothing")):
        yield Case(f"intervals: stored with {option}", _with(), ("intervals", "in.h5ad", "--store", *option), REFUSED)


def _damage() -> Iterator[Case]:
    """Files that were cut, and those with bits turned over, which are refused or give whole tables."""

    def damaged(change: Callable[[bytearray], bytes | bytearray]) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            _with()(folder)
            path = folder / "in.h5ad"
            path.write_bytes(change(bytearray(path.read_bytes())))

        return make

    for share in (0, 1, 20, 80, 99):
        yield _case(f"cut after {share} %", damaged(lambda c, share=share: c[: len(c) * share // 100]), REFUSED)
    for seed in range(30):
        yield _case(f"bits flipped {seed}", damaged(flipped(seed)), OK | REFUSED, *GENE)
