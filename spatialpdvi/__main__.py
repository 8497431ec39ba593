"""``python -m spatialpdvi``."""

from spatialpdvi.cli import main

main()
