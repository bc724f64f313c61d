"""From images on disk to rows of a gallery."""
