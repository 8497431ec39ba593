"""Coordinates, features and start labels -> the weighted spatial graph of the Potts term."""
