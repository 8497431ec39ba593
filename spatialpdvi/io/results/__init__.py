"""What a fit writes and reads back: key names, writing, and results of earlier fits."""
