"""Which patches of a sample the model kept, where the model can say."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from slimreid.errors import SlimReIDWarning
from slimreid.gallery.embedder import Embedder
from slimreid.inference.embed import as_samples, make_batch
from slimreid.inference.loaded_model import LoadedModel
from slimreid.serve.errors import NotAvailableError
from slimreid.serve.schemas import PatchGrid


def can_show_patches(model: Embedder) -> bool:
    """Whether a model says which patches it kept: one with token reduction, trained or exported."""
    return isinstance(model, LoadedModel) and model.reduces_tokens


def kept_patches(model: Embedder, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, PatchGrid]]:
    """Per sample and modality the patches that were kept to the end; raises `NotAvailableError`."""
    if not isinstance(model, LoadedModel) or not model.reduces_tokens:
        raise NotAvailableError("this model keeps all patches: it has no token reduction")
    listed = as_samples(list(samples), model.modalities)
    if not listed:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlimReIDWarning)  # nobody says which camera saw a query
        kept = model.kept_patches(make_batch(model, listed, [-1] * len(listed), 0))
    rows, columns = model.grid
    return [
        {
            name: PatchGrid(rows=rows, columns=columns, kept=sorted(numbers[m].tolist()))
            for m, name in enumerate(model.modalities)
            if name in sample
        }
        for sample, numbers in zip(listed, kept, strict=True)
    ]
