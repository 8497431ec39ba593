"""``spatialpdvi evaluate``."""

from pathlib import Path

import click

from spatialpdvi.cli.common import (
    FILE,
    check_outputs,
    display,
    importing,
    name_written,
    print_scores,
    table_option,
    user_errors,
    verbosity,
)

__all__ = ["evaluate"]


@click.command()
@click.argument("section", type=FILE)
@click.option("--label-key", default="annotation", show_default=True, help="Column of obs with the known labels.")
@click.option("--domain-key", default="pdvi_domain", show_default=True, help="Column of obs with the domains to score.")
@click.option(
    "--spatial-key",
    help="Key in obsm of the coordinates. Default: as in the fit of these domains; for others, spatial.",
)
@click.option(
    "--sample-key",
    help="Column of obs with the section of each spot. Default: as in the fit of these domains; for others, one "
    "section.",
)
@click.option(
    "--json", "--report", "report", type=FILE, help="Also write the scores as JSON to this file. Default: not written."
)
@verbosity
@user_errors
@table_option
def evaluate(
    section: Path,
    *,
    label_key: str,
    domain_key: str,
    spatial_key: str | None,
    sample_key: str | None,
    report: Path | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Score the domains of SECTION against known labels.

    Domains and labels are columns of obs, so that the domains of any method can be scored. ARI, NMI, homogeneity and
    completeness measure the agreement with the labels; CHAOS and PAS measure how coherent the domains are in space,
    each section by itself.

    \b
    Example:
      spatialpdvi evaluate embryo.h5ad --label-key annotation --domain-key leiden
    """
    with importing():
        from spatialpdvi.api import evaluate_file
        from spatialpdvi.io.storage.atomic import write_json

    check_outputs([section], json=report)
    with name_written(report):
        with display(quiet=quiet, verbose=verbose):
            scores = evaluate_file(
                section,
                label_key=label_key,
                domain_key=domain_key,
                spatial_key=spatial_key,
                sample_key=sample_key,
            )
        if report is not None:
            content = {"label_key": label_key, "domain_key": domain_key, "scores": scores}
            write_json(report, content, option="json")
        if not quiet:
            print_scores((domain_key, scores))
