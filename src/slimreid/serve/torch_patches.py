"""Kept patches from a model that torch runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image

from slimreid.data.batches import ModalBatch
from slimreid.inference.embed import as_samples, make_batch
from slimreid.inference.trained_model import TrainedModel
from slimreid.serve.schemas import PatchGrid
from slimreid.visual.patches.kept_patches import reduced_views


@torch.no_grad()
def find_patches(model: Any, samples: Sequence[Mapping[str, Any]]) -> list[dict[str, PatchGrid]]:
    """Per sample and modality the patches that the last stage of token reduction kept."""
    assert isinstance(model, TrainedModel)
    listed = as_samples(list(samples), model.modalities)
    batch = make_batch(model, listed, [-1] * len(listed), 0)
    output = model.model(ModalBatch.from_images(batch).to(model.device), with_reduced=True)
    grid = model.model.backbone.grid
    blank = dict.fromkeys(model.modalities, Image.new("RGB", (1, 1)))
    found = []
    for number, sample in enumerate(listed):
        views = reduced_views(output.reduced, number, blank, model.modalities, grid, output.present)
        found.append(
            {
                view.modality: PatchGrid(
                    rows=grid[0], columns=grid[1], kept=view.stages[-1].kept.nonzero()[0].tolist()
                )
                for view in views
                if view.modality in sample and view.stages
            }
        )
    return found
