"""Finite-sum problems ``F(phi, lambda) = sum_b f_b(phi_b, lambda)``: the interface, and the models that fill it."""
