"""The domains of a fit edited: renamed, united, divided, and united step by step to coarser ones."""
