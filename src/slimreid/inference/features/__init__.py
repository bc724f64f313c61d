"""Features of whole datasets, computed once and kept."""
