"""A generated world of people or vehicles in three modalities, none of which identifies anybody alone."""

from slimreid.config.synthetic import SynthOptions
from slimreid.data.synthetic.generate import make_world

__all__ = ["SynthOptions", "make_world"]
