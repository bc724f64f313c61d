"""Pictures of datasets and of training batches."""
