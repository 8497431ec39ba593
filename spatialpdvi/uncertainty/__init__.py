"""How sure a result is.

Intervals of domains' expression and composition, and approximations of posteriors that mean field makes too narrow.
"""
