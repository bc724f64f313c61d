"""Random changes of training samples: flip, crop, colour, erasing, missing modalities."""
