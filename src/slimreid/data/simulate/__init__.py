"""Near-infrared and thermal images computed from the photographs of an rgb-only dataset."""
