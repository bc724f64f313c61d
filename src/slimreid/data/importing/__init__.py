"""Turning folders of images into manifests: public datasets, path templates, unlabelled images."""
