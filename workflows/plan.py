"""Derive files, fits and command-line options from the config of the workflow and its table of samples.

The rules call a `Plan`, which uses the standard library alone and does not depend on Snakemake.
"""

import csv
import difflib
import hashlib
import json
import math
import shlex
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

JOINT = "joint"
# columns of the table of samples that are not options of a fit
COLUMNS = ("sample", "path", "k", "seeds", "label_key", "table", "bin_size", "evaluate")
# options of `spatialpdvi fit` that the rules set, or that have their own key in the config, with all their names
RESERVED = (
    "k",
    "n_domains",
    "seed",
    "label_key",
    "table",
    "output",
    "slim",
    "report",
    "json",
    "save_model",
    "threads",
    "checkpoint",
    "resume",
    "quiet",
    "verbose",
    "help_all",
)
# all other options: switches, numbers and texts
SWITCHES = ("whiten", "detrend", "cross_patch_edges", "across_sections", "save_graph", "intervals")
NUMBERS = (
    *("min_genes", "n_top_genes", "target_sum", "clip", "n_pcs", "smooth", "n_init", "n_neighbors", "flow_neighbors"),
    *("tau", "anisotropy", "beta", "search", "n_patches", "batch_patches", "inner_rounds", "step_factor", "step_size"),
    *("step_mean", "step_log_variance", "max_epochs", "tol", "tol_objective", "checkpoint_every"),
)
# switches that are on by default, for which false becomes `--no-...`
ON_BY_DEFAULT = ("whiten", "detrend", "cross_patch_edges", "markers")
# options of a fit that `spatialpdvi estimate` accepts as well
ESTIMATED = (
    "preset",
    "layer",
    "rep",
    "n_top_genes",
    "n_pcs",
    "smooth",
    "states",
    "init",
    "n_init",
    "restarts",
    "search",
    "n_neighbors",
    "flow_neighbors",
    "max_epochs",
    "memory",
    "save_graph",
)
# cells of these columns stay text: names such as 0012, and words
TEXTS = (
    *("layer", "spatial_key", "sample_key", "rep", "mask", "min_counts", "totals", "transform", "correct", "init"),
    *("restarts", "graph", "states", "solver", "duals", "memory", "key_added", "preset", "labels", "dask"),
)
_OPTIONS = (*SWITCHES, *NUMBERS, *TEXTS)
# what the columns hold that have their own key in the config
_CELLS = {
    "sample": "letters, digits, '.', '_' and '-', the first a letter or digit, and not joint, inputs or estimates,",
    "k": "a number from 2, a range such as 4:15, auto, or a list of these with commas",
    "seeds": "numbers with commas between them",
    "bin_size": "a number or cell",
    "evaluate": "true or false",
}
# options that do not change the result: a checkpoint made with other values of these can be resumed
_SAME_FIT = ("max_epochs", "memory", "key_added", "save_graph", "checkpoint_every", "dask")
# options of the fits that a report needs; it finds the others in the files
_OF_FITS = ("key_added", "memory")
_RAW = (".gef", ".gem", ".gem.gz")
CELLS = "cell"  # value of bin_size that asks for cells instead of squares
_MOST_DOMAINS = 30  # of `--k auto`, where the evidence still rises at 20
_SPARE = 1.3  # factor on the estimated memory
_SPARE_MB = 500


class PlanError(Exception):
    """An error in the config or the samples; its message is shown to the user."""


@dataclass(frozen=True)
class Sample:
    """A row of the table: name, path, and the settings that override the config."""

    name: str
    path: str
    own: dict[str, Any]

    @property
    def is_raw(self) -> bool:
        """Whether the sample has to be binned or imported before a fit can read it."""
        path = self.path.rstrip("/")
        return path.endswith(_RAW) or (Path(path).is_dir() and not path.endswith(".zarr"))


class Fitted(NamedTuple):
    """One sample in one fit."""

    name: str  # path under results/, without suffix
    sample: str
    k: str  # as written in file names
    seed: int
    report: str  # path of the JSON report of the fit


def read_switches(config: dict[str, Any]) -> None:
    """Convert the texts "true" and "false", which `snakemake --config` leaves, to booleans, in place."""
    for name, value in config.items():
        if isinstance(value, dict):
            read_switches(value)
        elif isinstance(value, str) and value.lower() in ("true", "false"):
            config[name] = value.lower() == "true"


def read_samples(path: str) -> list[Sample]:
    """Read a tab-separated table with a header; empty cells and lines that begin with # are ignored."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # with a mark at the start, as spreadsheets write it
    except OSError as error:
        msg = f"Expected the table of samples in {path!r}, found {error.strerror.lower()}. Set `samples` in the config."
        raise PlanError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"Expected a table in UTF-8 in {path!r}, found another encoding. Save it as text with tabs in UTF-8."
        raise PlanError(msg) from error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    header, *rows = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter="\t")] or [[]]
    if lines and not {"sample", "path"} <= set(header):
        msg = (
            f"Expected columns sample and path, with tabs between them, in the first line of {path!r} that does not "
            f"begin with #, found {lines[0]!r}."
        )
        raise PlanError(msg)
    twice = next((name for name in header if name and header.count(name) > 1), None)
    if twice is not None:
        msg = f"Expected every column once in {path!r}, found {twice} {header.count(twice)} times."
        raise PlanError(msg)
    samples = []
    for row in rows:
        nameless = next((cell for cell, name in zip_longest(row, header, fillvalue="") if cell and not name), None)
        if nameless is not None:
            msg = (
                f"Expected a name in the first line of {path!r} for every column, found none for {nameless!r} of {row}."
            )
            raise PlanError(msg)
        cells = {name: cell for name, cell in zip(header, row, strict=False) if cell}
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
        msg = f"Expected at least one sample in {path!r}, each with its own name, found {found}."
        raise PlanError(msg)
    return samples


def _value(column: str, text: str) -> Any:
    """Convert a cell as YAML would, except that 4:15 stays a range instead of a time of day."""
    if column in ("k", "seeds"):
        parts = [part.strip().removesuffix(".0") for part in text.split(",")]  # spreadsheets write 4.0 for 4
        values = [int(part) if part.isdecimal() else part for part in parts]
        return values if len(values) > 1 or column == "seeds" else values[0]
    if column.replace("-", "_") in (*TEXTS, "label_key", "table"):
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Plan:
    """All files that a run of the workflow makes, and the command-line options for them.

    Parameters
    ----------
    config
        Config that schemas/config.schema.json has validated and filled with defaults.
    samples
        Rows of the table.

    Raises
    ------
    PlanError
        If options, samples and mode are incompatible.
    """

    def __init__(self, config: dict[str, Any], samples: list[Sample]) -> None:
        self.config = config
        self.samples = {sample.name: sample for sample in samples}
        self.is_joint = config["mode"] == JOINT
        self._check()
        self.fitted = {found.name: found for found in self._all_fitted()}

    def _check(self) -> None:
        _check_k(self.config["k"])
        for sample in self.samples.values():
            if set("{}") & set(sample.path):
                msg = f"Expected a path without braces, which Snakemake fills in, found {sample.path!r}. Rename it."
                raise PlanError(msg)
            _check_options(self.own_options(sample.name), f"in the table, for sample {sample.name},")
            if self.is_joint:
                self._check_joint(sample)
        _check_options(self.config["fit_options"], "in `fit_options`,")
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
                "`spatialpdvi fit` on the stores directly."
            )
            raise PlanError(msg)

    # ---- which fits

    def ks(self, sample: str) -> list[str]:
        """Numbers of domains to fit, as written in file names (4-15 for 4:15)."""
        asked = self._setting(sample, "k")
        return [str(k).replace(":", "-") for k in (asked if isinstance(asked, list) else [asked])]

    def seeds(self, sample: str) -> list[int]:
        """Seeds with which each number of domains is fitted."""
        return [int(seed) for seed in self._setting(sample, "seeds")]  # lists on the command line hold texts

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
        """Path that a fit reads: the file itself, or the output of the rules bin and link."""
        found = self.samples[sample]
        return f"results/inputs/{sample}.h5ad" if found.is_raw or self.is_joint else found.path

    def estimates(self, samples: list[str], k: str) -> list[str]:
        """Paths of the estimates from which the memory of a fit is requested."""
        return [f"results/estimates/{sample}_k{k}.json" for sample in samples] if self.config["estimate"] else []

    def evaluated(self) -> list[Fitted]:
        """Fitted sections that are scored against labels. Raw sequencer output has no labels."""
        wanted = {
            name: sample.own.get("evaluate", self.config["evaluate"] and not sample.is_raw)
            for name, sample in self.samples.items()
        }
        return [found for found in self.fitted.values() if wanted[found.sample]]

    def pages(self) -> dict[str, list[str]]:
        """Reports and their sections, with the first seed; joint fits have one for each K, since files share names."""
        first = [found for found in self.fitted.values() if found.seed == self.seeds(found.sample)[0]]
        files = {found.name: f"results/{found.name}.h5ad" for found in first}
        ks = list(dict.fromkeys(found.k for found in first))
        if not self.is_joint or len(ks) == 1:
            return {"report": list(files.values())}
        return {f"report_k{k}": [files[found.name] for found in first if found.k == k] for k in ks}

    def counts(self, page: str) -> list[str]:
        """Paths of the sections from which a report reads the counts; none where it finds them in the fitted files."""
        return list(dict.fromkeys(self.source(sample) for sample in self._counted(page)))

    def _counted(self, page: str) -> list[str]:
        """Names of the samples of the sections of a report, where it needs other files for their counts."""
        if not self.config["slim"] or self.config["report_options"].get("markers") is False:
            return []
        samples = {f"results/{found.name}.h5ad": found.sample for found in self.fitted.values()}
        return [samples[path] for path in self.pages()[page]]

    def targets(self) -> list[str]:
        """Paths of all files that a run makes."""
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
        """Options of a fit that the table sets for this sample."""
        return {name: value for name, value in self.samples[sample].own.items() if name not in COLUMNS}

    def options(self, sample: str) -> dict[str, Any]:
        """Options of a fit other than K, seed and files; the sample's override those of the config."""
        found = self.samples[sample]
        named = {"label_key": self._fit_label(sample), "table": None if found.is_raw else found.own.get("table")}
        return {
            **_normal(self.config["fit_options"]),
            **_normal(self.own_options(sample)),
            **{name: value for name, value in named.items() if value is not None},
        }

    def _label(self, sample: str) -> str | None:
        """Column of labels; that of the config does not apply to raw sequencer output, which has none."""
        found = self.samples[sample]
        return found.own.get("label_key", None if found.is_raw else self.config["label_key"])

    def _fit_label(self, sample: str) -> str | None:
        """Column of labels for a fit; in a joint fit all sections must have it."""
        if not self.is_joint:
            return self._label(sample)
        return None if any(found.is_raw for found in self.samples.values()) else self.config["label_key"]

    def fit_flags(self, sample: str, k: str, seed: str) -> str:
        """Options of `spatialpdvi fit`."""
        options = {"slim": self.config["slim"], **self.options(sample)}
        return f"--k {k.replace('-', ':')} --seed {seed} {flags(options)}".strip()

    def checkpoint(self, sample: str, k: str, seed: str) -> str:
        """Name of the checkpoint folder, another for other options or sources, since it fits only its own."""
        options = self.options(sample)
        # with several starts, each one has ended at the limit of epochs
        free = [name for name in _SAME_FIT if name != "max_epochs" or options.get("restarts") != "best"]
        same = {name: value for name, value in options.items() if name not in free}
        names = list(self.samples) if self.is_joint else [sample]
        read = [[_state(self.samples[n].path), self.bin_flags(n) if self.samples[n].is_raw else ""] for n in names]
        digest = hashlib.sha256(json.dumps([same, read], sort_keys=True).encode()).hexdigest()[:8]
        return f"checkpoint_k{k}_seed{seed}_{digest}"

    def estimate_flags(self, sample: str, k: str) -> str:
        """Options of `spatialpdvi estimate`; for a range of K, the largest K is estimated."""
        most = _MOST_DOMAINS if k == "auto" else k.rpartition("-")[2]
        known = {n: v for n, v in self.options(sample).items() if n in (*ESTIMATED, "label_key", "table")}
        return f"--k {most} {flags(known)}".strip()

    def bin_flags(self, sample: str) -> str:
        """Options of `spatialpdvi bin`. Folders have their own spots and are binned only if the table says so."""
        is_folder = not self.samples[sample].path.endswith(_RAW)
        size = self.samples[sample].own.get("bin_size", None if is_folder else self.config["bin_size"])
        if size == CELLS:
            return "--cell-bin"
        return "" if size is None else f"--bin {size}"

    def evaluate_flags(self, sample: str) -> str:
        """Options of `spatialpdvi evaluate`."""
        options = self.options(sample)
        chosen = {"label_key": self._label(sample), "spatial_key": options.get("spatial_key")}
        if "key_added" in options:
            chosen["domain_key"] = f"{options['key_added']}_domain"
        return flags(chosen)

    def plot_flags(self, sample: str) -> str:
        """Options of `spatialpdvi plot`."""
        options = self.options(sample)
        chosen = {name: options.get(name) for name in ("key_added", "spatial_key")}
        return flags({"label_key": self._label(sample), **chosen, "dpi": self.config["dpi"]})

    def report_flags(self) -> str:
        """Options of `spatialpdvi report`: those that all fits of the page share, then `report_options`."""
        options = self.options(next(iter(self.samples)))
        of_fits = {name: options[name] for name in _OF_FITS if name in options}
        return flags({**of_fits, **self.config["report_options"]})

    def counts_flags(self, page: str) -> str:
        """Options of `spatialpdvi report` that name the counts of each section, in the order of the sections."""
        words = []
        for sample in self._counted(page):
            path, table = self.source(sample), self.options(sample).get("table")
            words += ["--counts", shlex.quote(path if table is None else f"{path}/tables/{table}")]
        return " ".join(words)

    def rows(self) -> list[dict[str, Any]]:
        """Fits that the summary is made of, with the paths of their scores."""
        scored = {found.name for found in self.evaluated()}
        return [
            {**found._asdict(), "scores": f"results/{found.name}.scores.json" if found.name in scored else None}
            for found in self.fitted.values()
        ]

    def memory_mb(self, estimates: list[str], attempt: int) -> int:
        """Memory to request, in MB: the sum of the estimates with a reserve, more after each failed attempt."""
        if not estimates:
            return int(self.config["mem_mb"]) * attempt
        peak = sum(json.loads(Path(path).read_text())["peak_memory_bytes"] for path in estimates)
        return math.ceil(_SPARE * peak / 1e6 + _SPARE_MB) * attempt


def _state(path: str) -> tuple[int, int] | None:
    """Size and time of the last change of a source; None where it is missing, of which Snakemake tells."""
    try:
        found = [Path(path).stat(), *(part.lstat() for part in Path(path).rglob("*"))]  # all of a folder or store
    except OSError:
        return None
    return sum(part.st_size for part in found), max(part.st_mtime_ns for part in found)


def flags(options: dict[str, Any]) -> str:
    """Options as words of a shell command; None is omitted, true turns a switch on and false turns it off."""
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


def unusable(path: str, sample: Sample, column: str, value: Any) -> PlanError:
    """Return the error for a cell of the table, at this path, that the schema refuses."""
    return PlanError(f"Expected {_CELLS[column]} as {column} of sample {sample.name!r} in {path!r}, found {value!r}.")


def _check_options(options: dict[str, Any], where: str) -> None:
    for name, value in _normal(options).items():
        if name in RESERVED:
            msg = f"Expected options that the workflow does not set itself {where} found {name}. Leave it out."
            raise PlanError(msg)
        if name not in _OPTIONS:
            near = difflib.get_close_matches(name, _OPTIONS, 1)
            advice = f"Did you mean {near[0]}?" if near else "`spatialpdvi fit --help-all` lists them."
            msg = f"Expected options of `spatialpdvi fit` {where} found {name}. {advice}"
            raise PlanError(msg)
        if value is not None:
            _check_value(name, value, where)


def _check_value(name: str, value: Any, where: str) -> None:
    is_switch = isinstance(value, bool)
    if name in SWITCHES and not is_switch:
        msg = f"Expected true or false for {name} {where} found {value!r}."
        raise PlanError(msg)
    if name in NUMBERS and (is_switch or not _is_number(value)):
        msg = f"Expected a number for {name} {where} found {value!r}."
        raise PlanError(msg)
    if name in TEXTS and is_switch:
        msg = f'Expected a text for {name} {where} found {str(value).lower()}. Quote words like "off" or "no" in YAML.'
        raise PlanError(msg)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _check_k(asked: Any) -> None:
    # YAML 1.1 reads 4:15 as a number to base 60: 255
    wrong = [k for k in (asked if isinstance(asked, list) else [asked]) if isinstance(k, int) and k >= 60]
    if wrong:
        msg = (
            f'Expected `k` of the config to be below 60 or quoted, found {wrong[0]}. Quote a range ("4:15"), which '
            "YAML takes for a time of day, and numbers from 60 on."
        )
        raise PlanError(msg)
