"""Checks of a dataset: its files, its labels, and whether its protocol can be evaluated."""

from slimreid.data.check.report import CheckReport, check_dataset

__all__ = ["CheckReport", "check_dataset"]
