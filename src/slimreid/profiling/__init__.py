"""Cost, latency and memory of models."""
