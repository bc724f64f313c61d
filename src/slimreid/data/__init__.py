"""From files on disk to batches: the manifest, its checks, images, augmentation, sampling and loading."""
