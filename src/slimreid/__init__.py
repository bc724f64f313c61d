"""SlimReID: multi-spectral re-identification with token reduction."""

from typing import TYPE_CHECKING, Any

from slimreid.extras import explain_missing

if TYPE_CHECKING:
    from slimreid.exporting.export import export
    from slimreid.gallery.gallery import Gallery
    from slimreid.inference.load import load

__version__ = "0.1.0"
__all__ = ["Gallery", "__version__", "export", "load"]


def __getattr__(name: str) -> Any:
    """Import what needs more only when it is asked for, so that `import slimreid` stays light."""
    if name == "load":
        from slimreid.inference.load import load

        return load
    if name == "Gallery":
        from slimreid.gallery.gallery import Gallery

        return Gallery
    if name == "export":
        with explain_missing():
            from slimreid.exporting.export import export
        return export
    raise AttributeError(f"module 'slimreid' has no attribute '{name}'")
