"""A generated tri-spectral world of people or vehicles, in which no single spectrum tells who is who."""

from slimreid.config.synthetic import SynthOptions
from slimreid.data.synthetic.generate import make_world

__all__ = ["SynthOptions", "make_world"]
