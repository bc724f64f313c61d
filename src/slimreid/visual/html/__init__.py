"""The report: one page about runs, section by section."""
