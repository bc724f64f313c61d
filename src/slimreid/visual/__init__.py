"""Pictures of data and results."""
