"""The domains of a saved model found in another section, and those of a fitted section at other places of it."""
