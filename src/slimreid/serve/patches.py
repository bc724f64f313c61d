"""Which patches of a sample the model kept, where the model can say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slimreid.gallery.embedder import Embedder
from slimreid.serve.errors import NotAvailableError
from slimreid.serve.schemas import PatchGrid


def can_show_patches(model: Embedder) -> bool:
    """Whether a model says which patches it kept: one that torch runs, with token reduction."""
    inner = getattr(model, "model", None)
    return any(getattr(inner, name, None) is not None for name in ("in_backbone", "after_backbone"))


def kept_patches(model: Embedder, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, PatchGrid]]:
    """Per sample and modality the patches that were kept to the end; raises `NotAvailableError`."""
    if not can_show_patches(model):
        raise NotAvailableError(
            "this model does not say which patches it kept: it was exported, or keeps all of them; start the "
            "service with the run it came from"
        )
    from slimreid.serve.torch_patches import find_patches

    return find_patches(model, samples)
