"""SlimReID: multi-spectral re-identification with guided patch slimming."""

from importlib.metadata import version

__version__ = version("slimreid")
__all__ = ["__version__"]
