"""A gallery in one SQLite file."""
