"""The blocks of R of docs/seurat.md, run by R on a real output."""

import re
import shutil
import subprocess
from pathlib import Path

import anndata as ad
import pandas as pd
import pytest
from click.testing import CliRunner

import spatialpdvi as spv
from spatialpdvi.cli import main

pytestmark = pytest.mark.cli

PAGE = (Path(__file__).parents[1] / "docs" / "seurat.md").read_text(encoding="utf-8")
TABLE, META, REDUCTION, FILE, EXPERIMENT = re.findall(r"```r\n(.*?)```", PAGE, flags=re.DOTALL)
COUNTS = 'counts <- as.matrix(read.csv("counts.csv", row.names = 1, check.names = FALSE))\n'
EXPECTED = 'expected <- read.csv("expected.csv", row.names = 1, colClasses = c(domain = "character"))\n'


@pytest.fixture(scope="module")
def rscript():
    found = shutil.which("Rscript")
    if found is None:
        pytest.skip("Rscript is not here: install R")
    return found


@pytest.fixture(scope="module")
def folder(rscript, tmp_path_factory):
    """The two files that the page writes, by its own command, and what R should find in them."""
    folder = tmp_path_factory.mktemp("seurat")
    adata = spv.simulate(n_spots=400, n_genes=60, k=3, easy=True)
    adata.obs_names = [f"spot-{i}" for i in range(400)]
    adata.obs["kept"] = [i >= 4 for i in range(400)]
    adata.write_h5ad(folder / "section.h5ad")
    (line,) = re.findall(r"^ {4}spatialpdvi (fit .*)$", PAGE, flags=re.MULTILINE)
    words = line.replace("--k 7", "--k 3").split()
    files = [str(folder / word) if "." in word else word for word in words]
    more = ["--mask", "kept", "--n-init", "2", "--n-top-genes", "60", "--tol", "1e-3", "-q"]
    done = CliRunner().invoke(main, [*files, *more])
    assert done.exit_code == 0, done.output
    light = ad.read_h5ad(folder / "light.h5ad")
    posterior = pd.DataFrame(light.obsm["pdvi_posterior"], index=light.obs_names, columns=["first", "second", "third"])
    place = pd.DataFrame(light.obsm["spatial"], index=light.obs_names, columns=["x", "y"])
    features = pd.Series(light.obsm["X_pdvi"][:, 0], index=light.obs_names, name="feature")
    named = light.obs[["pdvi_domain", "pdvi_confidence", "pdvi_confidence_calibrated"]]
    named = named.set_axis(["domain", "confidence", "calibrated"], axis=1)
    colour = named["domain"].map(dict(zip("012", light.uns["pdvi_domain_colors"], strict=True))).rename("colour")
    pd.concat([named, place, posterior, features, colour], axis=1).to_csv(folder / "expected.csv")
    pd.DataFrame(adata.X.toarray().T, index=adata.var_names, columns=adata.obs_names).to_csv(folder / "counts.csv")
    return folder


@pytest.fixture
def run(rscript, folder):
    """Run R in the folder; a package that is not installed is a reason to skip."""

    def run_script(*parts):
        script = "\n".join((*parts, 'cat("all is well")'))
        for package in re.findall(r"library\((\w+)\)", script):
            asked = f'quit(status = !requireNamespace("{package}", quietly = TRUE))'
            if subprocess.run([rscript, "-e", asked], capture_output=True, check=False).returncode:
                pytest.skip(f"the package {package} of R is not here")
        (folder / "script.R").write_text(script, encoding="utf-8")
        done = subprocess.run([rscript, "script.R"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("all is well")
        return done.stdout

    return run_script


CHECK_TABLE = """
own <- expected[!is.na(expected$domain) & expected$domain != "", ]
stopifnot(identical(rownames(labels), rownames(own)), nrow(labels) == 396)
stopifnot(identical(as.character(labels$domain), own$domain), identical(levels(labels$domain), c("0", "1", "2")))
stopifnot(all.equal(labels$confidence, own$confidence, tolerance = 1e-5))
stopifnot(max(abs(posterior - as.matrix(own[, c("first", "second", "third")]))) < 1e-5)
stopifnot(identical(labels$x, own$x), identical(labels$y, own$y), file.exists("Rplots.pdf"))
"""
CHECK_SEURAT = """
stopifnot(sum(is.na(object$domain)) == 4, ncol(object) == 400, ncol(fitted) == 396)
stopifnot(identical(as.character(object$domain[rownames(own)]), own$domain))
stopifnot(identical(as.character(Idents(fitted)), own$domain))
stopifnot(max(abs(Embeddings(fitted, "pdvi") - posterior)) == 0)
"""
CHECK_FILE = """
domain <- expected$domain
domain[domain == ""] <- NA
stopifnot(identical(rownames(result), rownames(expected)), identical(as.character(result$domain), domain))
stopifnot(all.equal(result$confidence, expected$calibrated, tolerance = 1e-5))
stopifnot(all.equal(features[, 1], expected$feature, tolerance = 1e-5, check.attributes = FALSE))
stopifnot(all.equal(place[, 1], expected$x), all.equal(place[, 2], expected$y))
stopifnot(identical(unname(colours[domain[5:400]]), expected$colour[5:400]), as.logical(converged))
"""
CHECK_EXPERIMENT = """
stopifnot(identical(as.character(sce$domain), rev(domain)), identical(rownames(reducedDim(sce)), colnames(sce)))
stopifnot(identical(unname(reducedDim(sce, "PDVI")[, 1]), unname(rev(features[, 1]))))
"""


def test_the_table(run):
    assert "0   1   2" in run(TABLE, EXPECTED, CHECK_TABLE)


def test_a_seurat_object(run):
    run(
        TABLE,
        "library(SeuratObject)",
        COUNTS,
        "object <- CreateSeuratObject(counts)",
        META,
        REDUCTION,
        EXPECTED,
        CHECK_TABLE,
        CHECK_SEURAT,
    )


def test_the_file_without_counts(run):
    run(FILE, EXPECTED, CHECK_FILE)


def test_an_experiment_of_bioconductor_in_another_order(run):
    begin = "sce <- SingleCellExperiment(list(counts = counts[, rev(colnames(counts))]))"
    run(FILE, EXPECTED, CHECK_FILE, "library(SingleCellExperiment)", COUNTS, begin, EXPERIMENT, CHECK_EXPERIMENT)
