"""What follows the backbone, as plain loops over samples and modalities: every reduction, every fusion."""

import pytest
import torch
from torch.testing import assert_close

from reference import fusion as reference
from slimreid.config.model import ReIDOptions
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel
from support.vit import random_vit, small
from support.ways import NAMES, SIZE, cameras, every_way, images, make


def watch_backbone(model):
    """A list that gets what the backbone gives, call by call."""
    seen = []
    model.backbone.register_forward_hook(lambda *hooked: seen.append(hooked[-1]))
    return seen


def plain_blocks(model, seen, reduced, present):
    """Global features (B, M, C), tokens (B, M, 1 + T, C) and sizes of all samples, absent ones at 0."""
    B, M = present.shape
    places = [(b, m) for m in range(M) for b in range(B) if present[b, m]]
    globals_ = torch.zeros(B, M, model.dim, dtype=torch.float64)
    tokens, sizes = {}, {}
    for row, (b, m) in enumerate(places):
        patches, size = seen.patches[row], None
        if model.in_backbone is not None:
            size = seen.state.size[row]
        mean = reference.mean_by_size(patches, size)
        globals_[b, m] = reference.global_local(seen.global_[row], mean, model.global_local[NAMES[m]])
        if model.after_backbone is not None:
            patches = reduced.tokens[b, m]
        tokens[b, m], sizes[b, m] = patches, size
    T = len(next(iter(tokens.values())))
    stacked = torch.zeros(B, M, 1 + T, model.dim, dtype=torch.float64)
    counts = None if model.in_backbone is None else torch.ones(B, M, 1 + T, dtype=torch.float64)
    for b, m in places:
        stacked[b, m] = torch.cat([globals_[b, m][None], tokens[b, m]])
        if counts is not None:
            counts[b, m, 1:] = sizes[b, m]
    return globals_, stacked, counts


def plain_second(model, stacked, counts, present):
    """Blocks of the second branch and which exist."""
    if model.options.fusion == "mean":
        blocks = torch.zeros(*present.shape, model.dim, dtype=torch.float64)
        for b, m in present.nonzero().tolist():
            size = None if counts is None else counts[b, m, 1:]
            blocks[b, m] = reference.mean_by_size(stacked[b, m, 1:], size)
        return blocks, present
    blocks = reference.hdm(stacked, present, model.hdm, counts)
    some = [[any(row[NAMES.index(n)] for n in subset) for subset in all_subsets(NAMES)] for row in present]
    some = torch.tensor(some)
    if model.options.fusion == "hdm":
        return blocks, some
    return reference.atmoe(reference.fill_absent(blocks, some, 1.0), model.moe), torch.ones_like(some)


@every_way
@pytest.mark.parametrize("complete", [True, False], ids=["complete", "mixed"])
def test_features_are_the_plain_loops(way, complete):
    model = make(global_local=True, **way).double().eval()
    subsets = all_subsets(NAMES)
    B = len(subsets)
    present = torch.tensor([[complete or name in subset for name in NAMES] for subset in subsets])
    seen = watch_backbone(model)
    with torch.no_grad():
        x = {name: image.double() for name, image in images(B).items()}
        out = model(x, cameras(B), present, with_reduced=True)
        globals_, stacked, counts = plain_blocks(model, seen[0], out.reduced, present)
        assert_close(out.features["original"], reference.join_blocks(globals_, present, True, 0.1))
        if model.second:
            blocks, exists = plain_second(model, stacked, counts, present)
            assert_close(out.features[model.second], reference.join_blocks(blocks, exists, True, 0.1))
    if model.in_backbone is not None:
        assert (counts[present][:, 1:].sum(-1) == 8).all(), "every patch of an image is counted"
        assert (counts > 1).any()


@every_way
def test_every_way_can_be_traced_for_a_subset(way):
    """Nothing looks at values, so that a graph of any subset can be exported, for any batch."""
    vit = random_vit(small("vit_b16"), SIZE)  # two blocks: tracing takes its time
    model = ReIDModel(vit, NAMES, 5, ReIDOptions(global_local=True, **way)).eval()
    subset = ("rgb", "tir")
    batch = {name: {0: torch.export.Dim("batch")} for name in subset}
    with torch.no_grad():
        traced = torch.export.export(
            Features(model), (images(5, subset),), dynamic_shapes=(batch,), strict=False
        )
        for B in (1, 3):
            x = images(B, subset, seed=B)
            assert_close(traced.module()(x), model(x).features["both"])


class Features(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).features["both"]
