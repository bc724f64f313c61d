"""Experiments: plans of runs that can be stopped and gone on with, their results, and comparing them."""
