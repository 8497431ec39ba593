"""What the workflow runs, from its config and its table of samples: files, fits, and options of the command line.

Plain Python and the standard library alone: rules ask a `Plan`, and it knows nothing of Snakemake.
"""

import csv
import hashlib
import json
import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

JOINT = "joint"
# columns of the table of samples that are no options of a fit
COLUMNS = ("sample", "path", "k", "seeds", "label_key", "table", "bin_size", "evaluate")
# options of `spatialpdvi fit` that the rules give themselves, or that have a place of their own in the config
RESERVED = (
    "k",
    "seed",
    "label_key",
    "table",
    "output",
    "report",
    "save_model",
    "threads",
    "checkpoint",
    "resume",
    "quiet",
    "verbose",
)
# switches that are on without being named, so that false has to be said
ON_BY_DEFAULT = ("whiten", "cross_patch_edges", "markers")
# options of a fit that `spatialpdvi estimate` takes too
ESTIMATED = (
    "layer",
    "rep",
    "n_top_genes",
    "n_pcs",
    "smooth",
    "init",
    "n_init",
    "restarts",
    "n_neighbors",
    "flow_neighbors",
    "max_epochs",
    "memory",
)
# options of a fit that leave it the same fit: a checkpoint made with another value of these goes on
_SAME_FIT = ("max_epochs", "memory", "key_added", "save_graph", "checkpoint_every", "dask")
# what a report asks of the options that the fits had; the rest it finds in the files
_OF_FITS = ("key_added", "memory")
_RAW = (".gef", ".gem", ".gem.gz")
CELLS = "cell"  # a size of bins: cells
_MOST_DOMAINS = 20  # of `--k auto`
_SPARE = 1.3  # times the memory of the estimate
_SPARE_MB = 500


class PlanError(Exception):
    """Config or samples that cannot be used; the text is for the user."""


@dataclass(frozen=True)
class Sample:
    """A row of the table: its name, where it is, and what it sets for itself."""

    name: str
    path: str
    own: dict[str, Any]

    @property
    def is_raw(self) -> bool:
        """Whether it has to be binned or imported before a fit can read it."""
        path = self.path.rstrip("/")
        return path.endswith(_RAW) or (Path(path).is_dir() and not path.endswith(".zarr"))


class Fitted(NamedTuple):
    """A fitted section: of which sample, by which fit."""

    name: str  # under results/, without ending
    sample: str
    k: str  # as in file names
    seed: int
    report: str  # JSON of the fit


def read_switches(config: dict[str, Any]) -> None:
    """Make true and false, which `snakemake --config` leaves as texts, what they are in a file; in place."""
    for name, value in config.items():
        if isinstance(value, dict):
            read_switches(value)
        elif isinstance(value, str) and value.lower() in ("true", "false"):
            config[name] = value.lower() == "true"


def read_samples(path: str) -> list[Sample]:
    """Rows of a table with tabs and a header; empty cells and lines that begin with # say nothing."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        msg = f"Expected the table of samples in {path!r}, found {error.strerror.lower()}. Set `samples` in the config."
        raise PlanError(msg) from error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    samples = []
    for row in csv.DictReader(lines, delimiter="\t"):
        cells = {name.strip(): value.strip() for name, value in row.items() if name and value and value.strip()}
        missing = [name for name in ("sample", "path") if name not in cells]
        if missing:
            msg = f"Expected columns sample and path in every row of {path!r}, found no {missing[0]} in {cells}."
            raise PlanError(msg)
        own = {name: _value(name, text) for name, text in cells.items() if name not in ("sample", "path")}
        samples.append(Sample(cells["sample"], cells["path"], own))
    names = [sample.name for sample in samples]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not names:
        found = f"{', '.join(repeated)} twice" if repeated else "none"
        msg = f"Expected at least one sample in {path!r}, each with a name of its own, found {found}."
        raise PlanError(msg)
    return samples


def _value(column: str, text: str) -> Any:
    """A cell as YAML would read it, but for 4:15, which is a range of numbers and no time of day."""
    if column in ("k", "seeds"):
        parts = [int(part) if part.strip().isdigit() else part.strip() for part in text.split(",")]
        return parts if len(parts) > 1 or column == "seeds" else parts[0]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Plan:
    """Everything that is to be made.

    Parameters
    ----------
    config
        Checked against schemas/config.schema.json, defaults filled in.
    samples
        Rows of the table.

    Raises
    ------
    PlanError
        Where options, samples and mode do not go together.
    """

    def __init__(self, config: dict[str, Any], samples: list[Sample]) -> None:
        self.config = config
        self.samples = {sample.name: sample for sample in samples}
        self.is_joint = config["mode"] == JOINT
        self._check()
        self.fitted = {found.name: found for found in self._all_fitted()}

    def _check(self) -> None:
        _check_k(self.config["k"], "`k` of the config")
        for sample in self.samples.values():
            _check_k(sample.own.get("k", 2), f"`k` of sample {sample.name}")
            _check_options(self.own_options(sample.name), f"in the table, for sample {sample.name},")
            if self.is_joint:
                self._check_joint(sample)
        _check_options(self.config["fit_options"], "in `fit_options`")
        self._check_report()

    def _check_report(self) -> None:
        keys = list(dict.fromkeys(self.options(sample).get("key_added", "") for sample in self.samples))
        if self.config["report"] and len(keys) > 1:
            msg = (
                f"Expected one value of key_added for all samples of a report, found {keys[0] or 'none'!r} and "
                f"{keys[1] or 'none'!r}. Set it in `fit_options`, or choose report: false."
            )
            raise PlanError(msg)

    def _check_joint(self, sample: Sample) -> None:
        alone = [name for name in sample.own if name not in ("label_key", "bin_size", "evaluate")]
        if alone:
            msg = (
                f"Expected one value of {alone[0]} for all samples of a joint fit, found one for {sample.name} in the "
                "table. Set it in the config."
            )
            raise PlanError(msg)
        if sample.path.rstrip("/").endswith(".zarr"):
            msg = (
                f"Expected files for a joint fit, found the store {sample.path!r}. Choose mode: separate, or run "
                "`spatialpdvi fit` on the stores yourself."
            )
            raise PlanError(msg)

    # ---- which fits

    def ks(self, sample: str) -> list[str]:
        """Numbers of domains to fit, as in file names (4-15 for 4:15)."""
        asked = self._setting(sample, "k")
        return [str(k).replace(":", "-") for k in (asked if isinstance(asked, list) else [asked])]

    def seeds(self, sample: str) -> list[int]:
        """Seeds to fit each of them with."""
        return [int(seed) for seed in self._setting(sample, "seeds")]  # texts in lists on a command line

    def _all_fitted(self) -> list[Fitted]:
        found = []
        for name in self.samples:
            for k in self.ks(name):
                for seed in self.seeds(name):
                    stem = f"{JOINT}/k{k}_seed{seed}/{name}" if self.is_joint else f"{name}/{name}_k{k}_seed{seed}"
                    report = (
                        f"results/{JOINT}/k{k}_seed{seed}/fit.json" if self.is_joint else f"results/{stem}.fit.json"
                    )
                    found.append(Fitted(stem, name, k, seed, report))
        return found

    # ---- files

    def source(self, sample: str) -> str:
        """What a fit reads: the file itself, or what the rules bin and link make of it."""
        found = self.samples[sample]
        return f"results/inputs/{sample}.h5ad" if found.is_raw or self.is_joint else found.path

    def estimates(self, samples: list[str], k: str) -> list[str]:
        """Estimates that the memory of a fit is taken from."""
        return [f"results/estimates/{sample}_k{k}.json" for sample in samples] if self.config["estimate"] else []

    def evaluated(self) -> list[Fitted]:
        """Fitted sections that are scored against labels; what a sequencer wrote has none."""
        wanted = {
            name: sample.own.get("evaluate", self.config["evaluate"] and not sample.is_raw)
            for name, sample in self.samples.items()
        }
        return [found for found in self.fitted.values() if wanted[found.sample]]

    def pages(self) -> dict[str, list[str]]:
        """Reports and their sections, of the first seed; of joint fits one for each K, since files share names."""
        first = [found for found in self.fitted.values() if found.seed == self.seeds(found.sample)[0]]
        files = {found.name: f"results/{found.name}.h5ad" for found in first}
        ks = list(dict.fromkeys(found.k for found in first))
        if not self.is_joint or len(ks) == 1:
            return {"report": list(files.values())}
        return {f"report_k{k}": [files[found.name] for found in first if found.k == k] for k in ks}

    def targets(self) -> list[str]:
        """All files that a run makes."""
        made = [f"results/{name}.h5ad" for name in self.fitted] + ["results/summary.tsv"]
        made += [f"results/{found.name}.scores.json" for found in self.evaluated()]
        if self.config["plot"]:
            made += [f"results/{name}.{self.config['plot_format']}" for name in self.fitted]
        if self.config["report"]:
            made += [f"results/{page}.html" for page in self.pages()]
        return made

    # ---- options of the commands

    def _setting(self, sample: str, name: str) -> Any:
        return self.samples[sample].own.get(name, self.config[name])

    def own_options(self, sample: str) -> dict[str, Any]:
        """Options of a fit that stand in the table."""
        return {name: value for name, value in self.samples[sample].own.items() if name not in COLUMNS}

    def options(self, sample: str) -> dict[str, Any]:
        """Options of a fit beside K, seed and files: the config's, then the sample's."""
        joined = {**_normal(self.config["fit_options"]), **_normal(self.own_options(sample))}
        for name in ("label_key", "table"):
            if name == "table" and self.samples[sample].is_raw:
                continue
            value = self.samples[sample].own.get(name) if name == "table" else self._fit_label(sample)
            joined |= {} if value is None else {name: value}
        return joined

    def _label(self, sample: str) -> str | None:
        """Column of labels; the config's is not asked of what a sequencer wrote, which has none."""
        found = self.samples[sample]
        return found.own.get("label_key", None if found.is_raw else self.config["label_key"])

    def _fit_label(self, sample: str) -> str | None:
        """Column that a fit is told of; a joint fit asks all of its sections for it."""
        if not self.is_joint:
            return self._label(sample)
        return None if any(found.is_raw for found in self.samples.values()) else self.config["label_key"]

    def fit_flags(self, sample: str, k: str, seed: str) -> str:
        """Of `spatialpdvi fit`."""
        return f"--k {k.replace('-', ':')} --seed {seed} {flags(self.options(sample))}".strip()

    def checkpoint(self, sample: str, k: str, seed: str) -> str:
        """Name of a checkpoint's folder, one for each choice of options: with others there is nothing to go on from."""
        options = self.options(sample)
        # of several starts each has ended at the limit of epochs
        free = [name for name in _SAME_FIT if name != "max_epochs" or options.get("restarts") != "best"]
        same = {name: value for name, value in options.items() if name not in free}
        digest = hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:8]
        return f"checkpoint_k{k}_seed{seed}_{digest}"

    def estimate_flags(self, sample: str, k: str) -> str:
        """Of `spatialpdvi estimate`; of a range of K for the largest."""
        most = _MOST_DOMAINS if k == "auto" else k.rpartition("-")[2]
        known = {n: v for n, v in self.options(sample).items() if n in (*ESTIMATED, "label_key", "table")}
        return f"--k {most} {flags(known)}".strip()

    def bin_flags(self, sample: str) -> str:
        """Of `spatialpdvi bin`: folders have spots of their own, and are binned where the table says so."""
        is_folder = not self.samples[sample].path.endswith(_RAW)
        size = self.samples[sample].own.get("bin_size", None if is_folder else self.config["bin_size"])
        if size == CELLS:
            return "--cell-bin"
        return "" if size is None else f"--bin {size}"

    def evaluate_flags(self, sample: str) -> str:
        """Of `spatialpdvi evaluate`."""
        options = self.options(sample)
        chosen = {"label_key": self._label(sample), "spatial_key": options.get("spatial_key")}
        if "key_added" in options:
            chosen["domain_key"] = f"{options['key_added']}_domain"
        return flags(chosen)

    def plot_flags(self, sample: str) -> str:
        """Of `spatialpdvi plot`."""
        options = self.options(sample)
        chosen = {name: options.get(name) for name in ("key_added", "spatial_key")}
        return flags({"label_key": self._label(sample), **chosen, "dpi": self.config["dpi"]})

    def report_flags(self) -> str:
        """Of `spatialpdvi report`: what all fits of the page have in common, then `report_options`."""
        options = self.options(next(iter(self.samples)))
        of_fits = {name: options[name] for name in _OF_FITS if name in options}
        return flags({**of_fits, **self.config["report_options"]})

    def rows(self) -> list[dict[str, Any]]:
        """What the summary is made of."""
        scored = {found.name for found in self.evaluated()}
        return [
            {**found._asdict(), "scores": f"results/{found.name}.scores.json" if found.name in scored else None}
            for found in self.fitted.values()
        ]

    def memory_mb(self, estimates: list[str], attempt: int) -> int:
        """Memory to ask for, in MB: the estimates' sum and some to spare, more after each attempt that failed."""
        if not estimates:
            return int(self.config["mem_mb"]) * attempt
        peak = sum(json.loads(Path(path).read_text())["peak_memory_bytes"] for path in estimates)
        return math.ceil(_SPARE * peak / 1e6 + _SPARE_MB) * attempt


def flags(options: dict[str, Any]) -> str:
    """Options as words of a shell's command line; None says nothing, true is a switch, false its opposite."""
    words = []
    for name, value in _normal(options).items():
        flag = name.replace("_", "-")
        if value is True:
            words.append(f"--{flag}")
        elif value is False:
            words += [f"--no-{flag}"] if name in ON_BY_DEFAULT else []
        elif value is not None:
            words += [f"--{flag}", shlex.quote(str(value))]
    return " ".join(words)


def _normal(options: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("-", "_"): value for name, value in options.items()}


def _check_options(options: dict[str, Any], where: str) -> None:
    taken = [name for name in _normal(options) if name in RESERVED]
    if taken:
        msg = f"Expected options that the workflow does not set itself {where} found {taken[0]}. Leave it out."
        raise PlanError(msg)


def _check_k(asked: Any, where: str) -> None:
    # YAML reads 4:15 as sixty-fours and units: 255
    wrong = [k for k in (asked if isinstance(asked, list) else [asked]) if isinstance(k, int) and k >= 60]
    if wrong:
        msg = (
            f'Expected {where} to be below 60 or quoted, found {wrong[0]}. Quote a range ("4:15"), which YAML takes '
            "for a time of day, and numbers from 60 on."
        )
        raise PlanError(msg)
