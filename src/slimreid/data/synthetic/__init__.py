"""A generated tri-spectral world of people or vehicles, in which no single spectrum tells who is who."""

from slimreid.data.synthetic.generate import make_world
from slimreid.data.synthetic.options import SynthOptions

__all__ = ["SynthOptions", "make_world"]
