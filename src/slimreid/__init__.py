"""SlimReID: multi-modal re-identification with token reduction."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from slimreid.extras import explain_missing

if TYPE_CHECKING:
    from slimreid.bulk.embed import embed_dataset
    from slimreid.exporting.export import export
    from slimreid.gallery.gallery import Gallery
    from slimreid.inference.adapt import adapt
    from slimreid.inference.load import load

__version__ = "0.1.0"
__all__ = ["Gallery", "__version__", "adapt", "embed_dataset", "export", "load"]

_PLACES = {
    "Gallery": "slimreid.gallery.gallery",
    "adapt": "slimreid.inference.adapt",
    "embed_dataset": "slimreid.bulk.embed",
    "export": "slimreid.exporting.export",
    "load": "slimreid.inference.load",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import slimreid` stays light."""
    if name not in _PLACES:
        raise AttributeError(f"module 'slimreid' has no attribute '{name}'")
    with explain_missing():
        return getattr(import_module(_PLACES[name]), name)
