"""Raw counts -> the features that are fitted."""
