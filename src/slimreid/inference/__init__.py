"""Load a model, embed images, read and write embeddings."""
