# Reads and checks the config and the table of samples, and defines functions that the rules share.
import json
import re
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

sys.path.insert(0, str(workflow.basedir))
from plan import Plan, PlanError, read_samples, read_switches, unusable


def make_plan():
    """Return the plan; an error in the config or in the samples becomes a WorkflowError with its message."""
    schema = Path(workflow.basedir) / "schemas" / "samples.schema.json"
    rows = Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
    try:
        samples = read_samples(config["samples"])
        for sample in samples:
            row = {"sample": sample.name, "path": sample.path, **sample.own}
            error = next(rows.iter_errors(row), None)
            if error is not None:
                column = error.absolute_path[0]
                raise unusable(config["samples"], sample, column, row[column])
        return Plan(config, samples)
    except PlanError as error:
        raise WorkflowError(str(error)) from error


def any_of(names):
    """Return a wildcard pattern that matches any of the names, or nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


read_switches(config)
validate(config, "../schemas/config.schema.json")
plan = make_plan()
# the end of a fit's command line, which accepts exit code 3 (not converged) if the config says so. Rules have it as a
# resource: another value of a parameter would repeat the fits that have converged
ENDING = "|| [ $? -eq 3 ]" if config["accept_not_converged"] else ""


wildcard_constraints:
    sample=any_of(plan.samples),
    fitted=any_of(plan.fitted),
    k=r"auto|\d+(-\d+)?",
    seed=r"\d+",
    page=any_of(plan.pages()),
