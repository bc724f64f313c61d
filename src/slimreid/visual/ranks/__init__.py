"""Rank lists: what a query found, as pictures."""
