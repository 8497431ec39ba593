"""The versions of spatialpdvi and of its libraries, in a module that imports nothing before it is needed."""

__version__ = "0.3.0.dev0"  # between releases the next one's, so that results say what made them


def library_versions(*optional: str) -> dict[str, str]:
    """Return the versions of the libraries that numbers depend on, and of optional packages that were used."""
    from importlib.metadata import version

    names = ("anndata", "numba", "numpy", "scanpy", "scikit-learn", "scipy", *optional)
    return {"spatialpdvi": __version__} | {name: version(name) for name in names}
