"""The weighted spatial graph of the Potts term, from coordinates, features and start labels."""
