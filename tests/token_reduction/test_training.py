"""The selection of patches can be learned, with gradients of natural size."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.token_reduction.estimators import Estimator, decide
from slimreid.token_reduction.score import min_max
from slimreid.token_reduction.select import stable_top
from support.reduction import COSINE, NAMES, streams

ESTIMATORS = ("topk", "gumbel", "soft_topk", "binary_concrete")


class Classifier(nn.Module):
    """A reducer with a linear head on the averaged tokens of all modalities."""

    def __init__(self, C: int = 32, N: int = 24, classes: int = 8, **options) -> None:
        super().__init__()
        config = AfterBackboneConfig(score_terms=COSINE, **options)
        self.reducer = AfterBackboneReducer(C, NAMES, config, num_patches=N)
        self.head = nn.Linear(3 * C, classes)

    def forward(self, patches: Tensor, vectors: Tensor) -> Tensor:
        return self.head(self.reducer(patches, vectors).tokens.mean(2).flatten(1))


def norms(model: Classifier) -> tuple[float, float]:
    """Gradient norm of all score predictors together, and the largest norm of any other parameter."""
    predictor = torch.cat([p.grad.flatten() for p in model.reducer.scorers.parameters()]).norm().item()
    others = [p.grad.norm().item() for name, p in model.named_parameters() if "scorers" not in name]
    return predictor, max(others)


def backward(model: Classifier, batch: tuple[Tensor, Tensor], labels: Tensor, dtype: torch.dtype) -> Tensor:
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        loss = F.cross_entropy(model(*batch).float(), labels)
    loss.backward()
    return loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("estimator", "tau"),
    [
        ("gumbel", 0.1),
        ("gumbel", 0.5),
        ("gumbel", 1.0),
        ("gumbel", 10.0),
        ("soft_topk", 0.5),
        ("binary_concrete", 1.0),
    ],
)
def test_hundred_steps_stay_finite_and_of_natural_size(estimator, tau, dtype):
    torch.manual_seed(0)
    model = Classifier(estimator=estimator, tau=tau)
    plain = Classifier(estimator="topk")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100):
        batch = streams(B=4, N=24, C=32, seed=step)
        labels = torch.randint(8, (4,))
        loss = backward(model, batch, labels, dtype)
        predictor, largest = norms(model)
        assert loss.isfinite()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        assert predictor <= largest
        if tau >= 0.5 and step % 4 == 0:
            plain.load_state_dict(model.state_dict(), strict=False)
            backward(plain, batch, labels, dtype)
            with_topk, _ = norms(plain)
            assert 0.1 * with_topk <= predictor <= 10 * with_topk
        optimizer.step()


def test_log_mask_has_the_forward_value_of_the_old_mask_without_its_gradient():
    """The earlier code let the decision enter as logits − (1 − D)·1e10."""
    torch.manual_seed(0)
    options = AfterBackboneConfig(score_terms=COSINE, estimator="gumbel")
    reducer = AfterBackboneReducer(32, ("rgb",), options, num_patches=24).train()
    patches, vectors = streams(B=8, M=1, N=24, C=32)
    head = torch.randn(8, 4, 32)

    def predictor_norm(merged: Tensor) -> float:
        reducer.zero_grad()
        (merged * head).mean().backward()
        return torch.cat([p.grad.flatten() for p in reducer.scorers.parameters()]).norm().item()

    rows = patches[:, 0]
    cosine = F.normalize(vectors, dim=-1) @ F.normalize(rows, dim=-1).mT
    score = 0.5 * reducer.scorers["rgb"](rows) + 0.5 * min_max(cosine)[:, 0]
    index = stable_top(score, 12)
    decision = decide(score, index, Estimator("gumbel"), torch.Generator().manual_seed(1)).gather(1, index)
    kept = rows.gather(1, index[..., None].expand(-1, -1, 32))
    logits = reducer.mergers["rgb"].logits(kept).transpose(1, 2) - (1 - decision)[:, None] * 1e10
    old = logits.softmax(-1) @ kept
    new = reducer(patches, vectors, generator=torch.Generator().manual_seed(1)).tokens[:, 0, :-1]
    torch.testing.assert_close(new, old)
    old_norm, new_norm = predictor_norm(old), predictor_norm(new)
    assert new_norm > 0
    # 1e10 times the gradient of the logits, nothing else.
    assert old_norm / new_norm == pytest.approx(1e10, rel=0.01)
    assert new_norm < 1


def signal(B: int, N: int, C: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Patches of which two, marked by channel 0, carry the label; the others carry louder false ones."""
    labels = torch.randint(4, (B,), generator=generator)
    patches = 0.3 * torch.randn(B, N, C, generator=generator)
    false = torch.randint(4, (B, N), generator=generator)
    patches += F.pad(F.one_hot(false, 4).float(), (1, C - 5))
    marked = torch.stack([torch.randperm(N, generator=generator)[:2] for _ in range(B)])
    rows = torch.arange(B)[:, None]
    patches[rows, marked] = 0.3 * torch.randn(B, 2, C, generator=generator)
    patches[rows, marked] += F.pad(F.one_hot(labels, 4).float(), (1, C - 5))[:, None]
    patches[rows, marked, 0] += 2.0
    return patches, labels, marked


def share_of_marked_kept(estimator: str, steps: int = 150) -> float:
    """Train on `signal` with only the leftover cut off, so that the choice is learned by D or not at all."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    options = {} if estimator == "topk" else {"tau": 0.3}
    if estimator == "binary_concrete":
        options["ratio_loss_weight"] = 4.0
    config = AfterBackboneConfig(keep_ratio=0.25, beta=0.0, estimator=estimator, **options)
    reducer = AfterBackboneReducer(12, ("rgb",), config, merged_tokens=2)
    head = nn.Linear(12, 4)
    optimizer = torch.optim.Adam([*reducer.parameters(), *head.parameters()], lr=1e-2)
    vectors = torch.zeros(32, 1, 12)
    for _ in range(steps):
        patches, labels, _ = signal(32, 16, 12, generator)
        reduced = reducer(patches[:, None], vectors)
        loss = F.cross_entropy(head(reduced.tokens[:, 0, :-1].mean(1)), labels)
        if reduced.kept_share is not None:
            loss = loss + reducer.ratio_loss(reduced.kept_share)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    patches, _, marked = signal(32, 16, 12, generator)
    decision = reducer.eval()(patches[:, None], vectors).selection.decision[:, 0]
    return decision.gather(1, marked).mean().item()


def test_the_choice_is_learned_through_the_decision():
    kept = {estimator: share_of_marked_kept(estimator) for estimator in ESTIMATORS}
    assert kept["soft_topk"] > 0.6
    assert kept["binary_concrete"] > 0.45
    assert kept["gumbel"] > 0.6
    assert kept["topk"] < 0.4  # 4 of 16 are kept: chance is 0.25, and nothing teaches it better


def test_copies_of_a_trained_reducer_agree():
    model = Classifier()
    batch = streams(N=24, C=32)
    assert torch.equal(copy.deepcopy(model)(*batch), model(*batch))
