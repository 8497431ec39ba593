"""Finite-sum problems ``F(phi, lambda) = sum_b f_b(phi_b, lambda)``: the interface and its implementations.

A problem must not know which solver minimises it, or where its patches are stored.
"""
