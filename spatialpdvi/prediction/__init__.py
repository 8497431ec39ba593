"""The domains of a saved model found in another section."""
