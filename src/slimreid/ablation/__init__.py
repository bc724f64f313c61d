"""Experiments: plans of runs that can be stopped and resumed, their results and comparison."""
