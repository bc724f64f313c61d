"""From files on disk to batches: one table (the manifest), layouts, transforms, sampler, dataset."""
