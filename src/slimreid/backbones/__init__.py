"""The vision transformer, and pretrained weights in their public formats."""
