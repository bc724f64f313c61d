"""The completion of absent blocks: against loops, without a trace in the rest of the model."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from slimreid.config import Config, LossConfig, ModelConfig
from slimreid.errors import ConfigError
from slimreid.models.completion import Completion, some_of
from slimreid.models.reid_model import ReIDModel
from slimreid.models.sizes import vit_config
from slimreid.models.vit import ViT
from slimreid.training.losses import ReIDLoss

NAMES = ("rgb", "nir", "tir")
PRESENT = torch.tensor([[1, 1, 1], [1, 0, 1], [0, 1, 0], [1, 1, 0]], dtype=torch.bool)


def make_model(**options) -> ReIDModel:
    torch.manual_seed(0)
    return ReIDModel(ViT(vit_config("nano"), (32, 16)), NAMES, 5, **options)


def images(B: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {name: torch.randn(B, 3, 32, 16, generator=generator) for name in NAMES}


def ready() -> Completion:
    """A completion whose statistics are those of some blocks."""
    torch.manual_seed(0)
    module = Completion(6, NAMES)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
        module.mean.normal_()
        module.variance.uniform_(0.5, 2.0)
    return module


def test_absent_blocks_equal_the_loops():
    module = ready()
    blocks = torch.randn(4, 3, 6)
    with torch.no_grad():
        filled = module(blocks, PRESENT)
    std = (module.variance + 1e-5).sqrt()
    for b in range(4):
        for t, target in enumerate(NAMES):
            if PRESENT[b, t]:
                assert torch.equal(filled[b, t], blocks[b, t])
                continue
            said = []
            for m, source in enumerate(NAMES):
                if PRESENT[b, m]:
                    head = module.heads[target][source]
                    z = (blocks[b, m] - module.mean[m]) / std[m]
                    said.append(F.gelu(z @ head[0].weight.T + head[0].bias) @ head[2].weight.T + head[2].bias)
            expected = sum(said) / len(said) * std[t] + module.mean[t]
            assert_close(filled[b, t], expected)


def test_the_loss_equals_the_loops_and_only_the_heads_learn():
    module = ready()
    module.seen.fill_(True)
    blocks = torch.randn(4, 3, 6).requires_grad_()
    before = module.mean.clone(), module.variance.clone()
    loss = module.loss(blocks, PRESENT, torch.Generator().manual_seed(3))
    generator, errors = torch.Generator().manual_seed(3), []
    for m in range(3):
        rows = blocks.detach()[PRESENT[:, m], m]
        assert_close(module.mean[m], 0.9 * before[0][m] + 0.1 * rows.mean(0))
        assert_close(module.variance[m], 0.9 * before[1][m] + 0.1 * rows.var(0))
    z = (blocks.detach() - module.mean) / (module.variance + 1e-5).sqrt()
    for t, target in enumerate(NAMES):
        others = PRESENT & (torch.arange(3) != t)
        chosen = some_of(others, generator)
        for b in range(4):
            if PRESENT[b, t] and others[b].any():
                said = [module.heads[target][NAMES[m]](z[b, m]) for m in range(3) if chosen[b, m]]
                errors.append((sum(said) / len(said) - z[b, t]).square().mean())
    assert_close(loss, torch.stack(errors).mean())
    loss.backward()
    assert blocks.grad is None
    assert all(p.grad is not None for p in module.parameters())


def test_samples_of_one_modality_teach_nothing_but_stay_in_the_graph():
    module = ready()
    loss = module.loss(torch.randn(3, 3, 6), torch.eye(3, dtype=torch.bool))
    assert loss.item() == 0
    loss.backward()
    assert all((p.grad == 0).all() for p in module.parameters())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=6), st.integers(0, 99))
def test_a_random_part_of_a_set(rows, seed):
    sets = torch.tensor(rows)
    part = some_of(sets, torch.Generator().manual_seed(seed))
    assert not (part & ~sets).any()
    assert torch.equal(part.any(1), sets.any(1))


def test_every_non_empty_part_is_drawn():
    sets = torch.tensor([[True, True, False, True]]).repeat(500, 1)
    part = some_of(sets, torch.Generator().manual_seed(0))
    assert len({tuple(row) for row in part.tolist()}) == 7


def test_it_learns_what_can_be_known():
    """Two blocks that are a turn of each other are predicted; one of noise is not."""
    torch.manual_seed(0)
    module = Completion(8, NAMES, hidden=24)
    turn = torch.linalg.qr(torch.randn(8, 8)).Q
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)

    def draw():
        first = torch.randn(64, 8)
        return torch.stack([50 + first, 20 + first @ turn, torch.randn(64, 8)], 1)

    for _ in range(200):
        optimizer.zero_grad()
        module.loss(draw()).backward()
        optimizer.step()
    blocks = draw()
    present = torch.tensor([[True, False, True]]).repeat(64, 1)
    with torch.no_grad():
        filled = module(blocks, present)
    centred = F.cosine_similarity(filled[:, 1] - 20, blocks[:, 1] - 20).mean()
    assert centred > 0.7, "the mean over a good and a useless source still points the right way"


def test_the_rest_of_the_model_does_not_notice():
    plain, completing = make_model(), make_model(completion=True)
    for name, value in plain.state_dict().items():
        assert torch.equal(value, completing.state_dict()[name]), name
    x = images()
    outputs = []
    for model in (plain, completing):
        torch.manual_seed(5)
        out = model.train()(x, None, PRESENT)
        losses = ReIDLoss(LossConfig(), model.branch_weights)(out, torch.tensor([0, 0, 1, 1]))
        losses["total"].backward()
        outputs.append((out, losses, {n: p.grad for n, p in model.named_parameters()}))
    (first, losses, grads), (second, more, others) = outputs
    assert torch.equal(first.features["both"], second.features["both"])
    assert set(more) - set(losses) == {"completion"}
    assert (more["total"] - losses["total"]).item() == pytest.approx(more["completion"].item(), abs=1e-4)
    for name, grad in grads.items():
        assert (grad is None and others[name] is None) or torch.equal(grad, others[name]), name


@pytest.mark.parametrize("options", [{}, {"fusion": "none"}, {"fusion": "mean"}, {"neck_feature": "after"}])
def test_absent_blocks_are_predicted_in_test_in_both_branches(options):
    model = make_model(completion=True, **options)
    model.train()(images(), None, PRESENT)  # statistics
    model.eval()
    mean = make_model(**options).eval()
    mean.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("completion")})
    with torch.no_grad():
        filled, expected = (m(images(), None, PRESENT).features for m in (model, mean))
        whole = [m(images()).features["both"] for m in (model, mean)]
    assert torch.equal(whole[0], whole[1]), "nothing absent, nothing to predict"
    for name, feature in filled.items():
        if name == "both":
            continue
        blocks, others = (f.view(4, 3, -1) for f in (feature, expected[name]))
        assert_close(blocks.norm(dim=-1), torch.ones(4, 3))
        if options.get("neck_feature") != "after":
            assert torch.equal(blocks[PRESENT], others[PRESENT])
        assert not torch.isclose(blocks[~PRESENT], others[~PRESENT]).all(1).any()


def test_it_begins_as_the_mean_block_of_the_modality():
    module = Completion(6, NAMES)
    blocks = torch.randn(64, 3, 6) + 5
    assert module.loss(blocks).item() == pytest.approx(63 / 64, abs=1e-3), "the variance of each channel"
    filled = module(blocks, torch.tensor([[True, False, True]]).repeat(64, 1))
    assert_close(filled[:, 1], blocks[:, 1].mean(0).expand(64, 6))


def test_the_loss_is_seeded():
    model = make_model(completion=True).train()
    state = {name: value.clone() for name, value in model.completion.state_dict().items()}
    for name, value in state.items():
        if "heads" in name:
            value.normal_()
    found = []
    for seed in (0, 0, 1):
        model.completion.load_state_dict(state)
        torch.manual_seed(seed)
        found.append(model(images(), None, PRESENT).completion_loss.item())
    assert found[0] == found[1] != found[2]


def test_options_that_do_not_go_together_are_refused():
    for options in ({"missing": "zeros"}, {"fusion": "hdm"}, {"fusion": "hdm_atmoe"}):
        with pytest.raises(ConfigError, match="completion"):
            ModelConfig(completion=True, **options)
        with pytest.raises(ConfigError, match="completion"):
            make_model(completion=True, **options)
    with pytest.raises(ConfigError, match="two modalities"):
        ReIDModel(ViT(vit_config("nano"), (32, 16)), ("rgb",), 5, completion=True)
    with pytest.raises(ConfigError, match="completion_weight must be positive"):
        LossConfig(completion_weight=0.0)
    assert Config(model=ModelConfig(completion=True)).model.completion


def test_the_weight_of_the_loss_counts():
    out = make_model(completion=True).train()(images(), None, PRESENT)
    identity = torch.tensor([0, 0, 1, 1])
    light, heavy = (
        ReIDLoss(LossConfig(completion_weight=w), {"original": 1.0, "slimmed": 1.0})(out, identity)
        for w in (1.0, 3.0)
    )
    assert float(heavy["total"] - light["total"]) == pytest.approx(2 * float(light["completion"]), abs=1e-4)
