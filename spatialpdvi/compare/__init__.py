"""Comparison of solvers on one section, from the same starts."""
