"""Figures of results, drawn with matplotlib."""
