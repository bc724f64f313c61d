"""Finished and unfinished runs: their folders, results, comparison and tables."""
