"""Snakemake wrapper for `spatialpdvi fit`."""

__author__ = "the developers of spatialpdvi"
__license__ = "BSD-3-Clause"

import shlex
from pathlib import Path

from snakemake.shell import shell

log = snakemake.log_fmt_shell(stdout=True, stderr=True)
extra = snakemake.params.get("extra", "")

sections = snakemake.input.get("sections", snakemake.input)
sections = [sections] if isinstance(sections, str) else list(sections)
written = snakemake.output.get("section", snakemake.output[0])
written = [written] if isinstance(written, str) else list(written)
# with several sections, --output is a folder
target = written[0] if len(sections) == 1 else str(Path(written[0]).parent)

words = ["--k", str(snakemake.params.k), "--threads", str(snakemake.threads), "--output", target]
for option, path in (("--report", snakemake.output.get("report")), ("--save-model", snakemake.output.get("model"))):
    words += [option, path] if path else []
if snakemake.params.get("checkpoint"):
    words += ["--checkpoint", snakemake.params.checkpoint, "--resume"]
words = shlex.join([*words, *sections])

shell("spatialpdvi fit {extra} {words} {log}")
