"""Spatial domains by preconditioned primal-dual variational inference."""

__version__ = "0.1.0"
