"""Exact search over the features of a gallery in memory."""
