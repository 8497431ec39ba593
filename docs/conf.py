"""How Sphinx builds these pages: `sphinx-build -W -b html docs docs/_build/html`, with the extra ``[docs]``."""

import os

from spatialpdvi import __version__

# the documents are made of what `--help` and docstrings say, on whatever terminal
os.environ.setdefault("COLUMNS", "100")

project = "spatialpdvi"
author = "the developers of spatialpdvi"
release = version = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "make_cli.py", "experiments/*/[!R]*.md"]  # of those pages the README is made
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
html_theme = "furo"
html_title = f"spatialpdvi {release}"

myst_heading_anchors = 4
# Displayed equations break lines by \cr: Sphinx wraps those with \\ in a split environment, which cannot hold a \tag.
myst_enable_extensions = ["colon_fence", "dollarmath"]
suppress_warnings = [
    "myst.xref_missing",  # links to files that are no pages: pictures' folders, scripts, the README; tests hold them
    "myst.header",  # pages of tables begin where they begin
]

# the notebook is run on every build and kept without what it shows; a warning in it is one of the build
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # a fresh machine compiles the kernels first
nb_output_stderr = "warn"

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings give shapes and units, which types do not
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_rtype = False
