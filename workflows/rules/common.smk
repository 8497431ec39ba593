# Reads and checks the config and the table of samples, and defines functions that the rules share.
import re
import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

sys.path.insert(0, str(workflow.basedir))
from plan import Plan, PlanError, read_samples, read_switches


def make_plan():
    """Return the plan; an error in the config or in the samples becomes a WorkflowError with its message."""
    try:
        samples = read_samples(config["samples"])
        for sample in samples:
            row = {"sample": sample.name, "path": sample.path, **sample.own}
            validate(row, "../schemas/samples.schema.json")
        return Plan(config, samples)
    except PlanError as error:
        raise WorkflowError(str(error)) from error


def any_of(names):
    """Return a wildcard pattern that matches any of the names, or nothing if there are none."""
    return "|".join(map(re.escape, names)) or "(?!)"


def accepted():
    """Return the end of a fit's command line, which accepts exit code 3 (not converged) if the config says so."""
    return "|| [ $? -eq 3 ]" if config["accept_not_converged"] else ""


read_switches(config)
validate(config, "../schemas/config.schema.json")
plan = make_plan()


wildcard_constraints:
    sample=any_of(plan.samples),
    fitted=any_of(plan.fitted),
    k=r"auto|\d+(-\d+)?",
    seed=r"\d+",
    page=any_of(plan.pages()),
