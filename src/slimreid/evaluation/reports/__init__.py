"""From a model and a dataset to an evaluation: measuring, missing modalities, files."""
