"""Where a fit starts: restarts on smoothed features, their consensus, and the parameters that follow from it."""
