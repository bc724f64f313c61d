"""Optional dependencies: which extra of the package brings what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slimreid.errors import SlimReIDError

_MODULES = {
    "train": (
        "torch",
        "jinja2",
        "markupsafe",
        "accelerate",
        "pytorch_metric_learning",
        "scipy",
        "sklearn",
        "matplotlib",
        "tensorboard",
        "huggingface_hub",
    ),
    "export": ("onnx", "onnxscript"),
    "gallery": ("numkong", "pyarrow", "pymilvus"),
    "serve": ("fastapi", "starlette", "pydantic", "anyio", "uvicorn", "python_multipart"),
    "ray": ("ray", "fsspec"),
}
EXTRA_OF = {module: extra for extra, modules in _MODULES.items() for module in modules}
"""Module that is imported -> extra of the package that installs it."""
_WITHOUT_TORCH = {"scipy": "gallery"}
"""Modules that a smaller extra brings too."""


class MissingExtraError(SlimReIDError):
    """An optional dependency is not installed; the message says how to get it."""


def missing_extra(error: ImportError) -> MissingExtraError | None:
    """What to tell a user whose import failed; None where it is no matter of an extra."""
    module = (error.name or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or module not in EXTRA_OF:
        return None
    cure = f"pip install 'slimreid[{EXTRA_OF[module]}]'"
    if module in _WITHOUT_TORCH:
        cure += f", or without torch 'slimreid[{_WITHOUT_TORCH[module]}]'"
    return MissingExtraError(f"this needs {module}, which is not installed: {cure}")


@contextmanager
def explain_missing() -> Iterator[None]:
    """Raise `MissingExtraError` where an import in the block fails for want of an extra."""
    try:
        yield
    except ImportError as error:
        found = missing_extra(error)
        if found is None:
            raise
        raise found from None
