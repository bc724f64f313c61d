"""Token reduction in the backbone while training: which gradients there are, and that options matter."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from slimreid.backbones.layers import Attention
from slimreid.config.model import ReIDOptions
from slimreid.config.token_reduction import AfterBackboneConfig, InBackboneConfig
from slimreid.models.reid_model import ReIDModel
from support.in_backbone import NAMES, SIZE, images, reduced_in_backbone
from support.vit import random_vit, small


def gradients(**options):
    """Gradient of every parameter of a small model for one batch, and the model's output."""
    model = reduced_in_backbone(**options).train()
    out = model(images(4))
    sum(logits.square().sum() for logits in out.logits.values()).backward()
    return {n: p.grad for n, p in model.named_parameters() if p.grad is not None}, out


@pytest.mark.parametrize("dropped", ["merge", "leftover", "discard"])
def test_every_parameter_learns(dropped):
    found, _ = gradients(dropped=dropped)
    model = reduced_in_backbone(dropped=dropped)
    assert set(found) == {n for n, p in model.named_parameters() if p.requires_grad}
    assert found["backbone.patch_embed.weight"].abs().max() > 0


def test_the_score_has_a_gradient_through_the_leftover_only(monkeypatch):
    from slimreid.token_reduction import in_backbone

    plain = in_backbone.score_patches
    for dropped in ("leftover", "merge", "discard"):
        reached = []

        def watched(*args, reached=reached):
            scores = plain(*args)
            assert scores.total.requires_grad
            scores.total.register_hook(reached.append)
            return scores

        monkeypatch.setattr(in_backbone, "score_patches", watched)
        gradients(dropped=dropped)
        assert bool(reached) == (dropped == "leftover")


def test_the_gradient_of_a_key_bias_is_that_of_the_written_out_softmax():
    torch.manual_seed(0)
    attention = Attention(small("vit_b16"))
    x = torch.randn(2, 5, 64)
    bias, again = (torch.zeros(2, 5, requires_grad=True) for _ in range(2))
    attention(x, key_bias=bias)[0].square().sum().backward()
    q, k, v = (
        F.linear(x, attention.qkv.weight, attention.qkv.bias).view(2, 5, 3, 2, 32).permute(2, 0, 3, 1, 4)
    )
    weights = (q @ k.transpose(-1, -2) / 32**0.5 + again[:, None, None]).softmax(-1)
    attention.proj((weights @ v).transpose(1, 2).reshape(2, 5, 64)).square().sum().backward()
    assert_close(bias.grad, again.grad, atol=1e-5, rtol=1e-4)
    assert bias.grad.abs().min() > 0
    shifted = attention(x, key_bias=torch.tensor([[0.0, 0.0, 0.0, 0.0, -1e4]] * 2))[0]
    assert_close(shifted[:, :4], attention(x[:, :4])[0], atol=1e-5, rtol=1e-4)


def test_every_option_is_read():
    """Another value of each option changes features or gradients."""
    other = {
        "schedule": ((0.5, 0.3),), "train_schedule": ((0.5, 0.3),), "score_terms": ("self",), "dropped": "leftover", "redundancy": 0.0,
    }  # fmt: skip
    assert set(other) == {field.name for field in dataclasses.fields(InBackboneConfig)}
    _, base = gradients(depth=3)
    for name, value in other.items():
        _, out = gradients(depth=3, **{name: value})
        assert not torch.equal(out.features["both"], base.features["both"]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dropped", ["merge", "leftover", "discard"])
def test_half_precision_is_finite(dtype, dropped):
    terms = ("self", "cross", "attention", "contrast", "cross_contrast")
    model = reduced_in_backbone(score_terms=terms, dropped=dropped).train()
    with torch.autocast("cpu", dtype):
        out = model(images(4))
    sum(logits.float().square().sum() for logits in out.logits.values()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_checkpointing_gives_the_same_gradients():
    found = []
    for on in (False, True):
        model = reduced_in_backbone().train()
        model.backbone.config = dataclasses.replace(model.backbone.config, grad_checkpointing=on)
        out = model(images(4))
        sum(logits.square().sum() for logits in out.logits.values()).backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert_close(found[0], found[1], atol=1e-5, rtol=1e-4)


def test_a_model_of_one_modality_is_reduced_by_itself():
    model = reduced_in_backbone(names=("rgb",), score_terms=("self", "cross_contrast"))
    alone = reduced_in_backbone(names=("rgb",), score_terms=("self",))
    x = images(2, ("rgb",))
    assert torch.equal(model(x).features["both"], alone(x).features["both"])


def test_attention_is_a_term_after_the_backbone_too():
    """The class token's attention in the last block ranks the patches."""
    vit = random_vit(small("vit_b16", depth=3), SIZE)
    options = ReIDOptions(after_backbone=AfterBackboneConfig(score_terms=("attention",)))
    model = ReIDModel(vit, NAMES, 5, options).eval()
    x = images(2)
    with torch.no_grad():
        reduced = model(x, with_reduced=True).reduced
        rows = torch.cat([x[name] for name in NAMES])
        attention = vit(rows, None, None, (2,)).state.attention[:, vit.config.prefix :]
        assert torch.equal(vit(rows).patches, vit(rows, None, None, (2,)).patches)
    attention = attention.view(3, 2, -1).transpose(0, 1)
    order = attention.argsort(-1, descending=True)[..., : reduced.selection.index.shape[-1]]
    assert torch.equal(reduced.selection.index, order)
