"""SlimReID: multi-spectral re-identification with guided patch slimming."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slimreid.loading import load

__version__ = version("slimreid")
__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """Import what needs torch only when it is asked for, so that `import slimreid` stays light."""
    if name == "load":
        from slimreid.loading import load

        return load
    raise AttributeError(f"module 'slimreid' has no attribute '{name}'")
