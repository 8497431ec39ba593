"""Simulated sections with known domains, which tests, documentation and benchmarks share, and new users can try.

The room must not know how domains are found.
"""

from spatialpdvi.synthetic.section import simulate, simulate_file

__all__ = ["simulate", "simulate_file"]
