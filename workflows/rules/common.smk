# Config and table of samples, checked; functions that the rules share.
import re
import sys

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

sys.path.insert(0, str(workflow.basedir))
from plan import Plan, PlanError, read_samples, read_switches


def make_plan():
    """The plan, or the reason why there is none in the user's words."""
    try:
        samples = read_samples(config["samples"])
        for sample in samples:
            row = {"sample": sample.name, "path": sample.path, **sample.own}
            validate(row, "../schemas/samples.schema.json")
        return Plan(config, samples)
    except PlanError as error:
        raise WorkflowError(str(error)) from error


def any_of(names):
    """Pattern of a wildcard that stands for one of the names; of none for nothing that a path could be."""
    return "|".join(map(re.escape, names)) or "(?!)"


def accepted():
    """What follows a fit's command: whether one that has not converged counts as done."""
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
