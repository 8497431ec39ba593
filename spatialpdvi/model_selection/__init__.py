"""How many domains: every number of a range is fitted, and one is recommended with its reason."""
