"""Several processes, and what can go wrong between them."""
