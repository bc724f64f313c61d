"""Slimming inside: tokens times D, sources of a model that is alone, attention behind the backbone."""

from __future__ import annotations

import pytest
import torch
from inside_cases import NAMES, SIZE, images, slimmed_inside
from vit_cases import random_vit, small

from slimreid.errors import ConfigError
from slimreid.models.reid_model import ReIDModel
from slimreid.slimming import SlimmingOptions


def trained(**options):
    """A model after one backward pass, and its output."""
    model = slimmed_inside(**options).train()
    out = model(images(4), generator=torch.Generator().manual_seed(0))
    sum(logits.square().sum() for logits in out.logits.values()).backward()
    return model, out


def test_a_model_of_one_spectrum_is_slimmed_by_itself():
    model = slimmed_inside(names=("rgb",), sources=("own", "others_contrast"))
    alone = slimmed_inside(names=("rgb",), sources=("own",))
    x = images(2, ("rgb",))
    assert torch.equal(model(x).features["both"], alone(x).features["both"])
    with pytest.raises(ConfigError, match="second modality"):
        slimmed_inside(names=("rgb",), sources=("others_contrast",))


def test_tokens_times_the_decision_change_nothing_but_the_gradient():
    options = {"estimator": "soft_topk", "leftover": "none", "decision_in_merge": False}
    weighed, out = trained(weigh_kept=True, **options)
    keyed, expected = trained(soft_keys=True, **options)
    assert torch.allclose(out.features["both"], expected.features["both"], atol=1e-5)
    grads = [
        [float(p.grad.square().sum()) for stage in model.inside.scorers for p in stage.parameters()]
        for model in (weighed, keyed)
    ]
    assert min(grads[0]) >= 0
    assert sum(grads[0]) > 0, "without leftover, only D teaches the predictor"
    assert grads[0] != grads[1]


def test_attention_is_a_source_behind_the_backbone_too():
    """The class token's attention in the last block ranks the patches."""
    vit = random_vit(small("vit_b16", depth=3), SIZE)
    model = ReIDModel(vit, NAMES, 5, slimming=SlimmingOptions(sources=("attention",))).eval()
    x = images(2)
    with torch.no_grad():
        slimmed = model(x, with_slimmed=True).slimmed
        rows = torch.cat([x[name] for name in NAMES])
        attention = vit(rows, None, None, (2,)).state.attention[:, vit.config.prefix :]
        assert torch.equal(vit(rows).patches, vit(rows, None, None, (2,)).patches)
    attention = attention.view(3, 2, -1).transpose(0, 1)
    order = attention.argsort(-1, descending=True)[..., : slimmed.selection.index.shape[-1]]
    assert torch.equal(slimmed.selection.index, order)
