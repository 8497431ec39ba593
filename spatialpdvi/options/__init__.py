"""Every option of a fit: its default, its help and its checks."""
