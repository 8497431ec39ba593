"""Scores of domains against an annotation and in space, and the calibration of posteriors.

Nothing here may know how domains are found.
"""
