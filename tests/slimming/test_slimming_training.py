"""The choice of patches can be learned, with gradients of natural size."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from slimming_cases import NAMES, streams
from torch import Tensor, nn

from slimreid.slimming import MultiModalSlimmer, PatchSlimmer, decide, min_max, stable_top


class Classifier(nn.Module):
    """A slimmer with a linear head on the averaged tokens of all modalities."""

    def __init__(self, C: int = 32, N: int = 24, classes: int = 8, **options) -> None:
        super().__init__()
        self.slimmer = MultiModalSlimmer(C, NAMES, num_patches=N, **options)
        self.head = nn.Linear(3 * C, classes)

    def forward(self, patches: Tensor, vectors: Tensor) -> Tensor:
        return self.head(self.slimmer(patches, vectors).tokens.mean(2).flatten(1))


def norms(model: Classifier) -> tuple[float, float]:
    """Gradient norm of all score predictors together, and the largest norm of any other parameter."""
    predictor = torch.cat([p.grad.flatten() for p in model.slimmer.scorers.parameters()]).norm().item()
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
    [("gumbel", 0.1), ("gumbel", 0.5), ("gumbel", 1.0), ("gumbel", 10.0), ("soft_topk", 0.5)],
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
            plain.load_state_dict(model.state_dict())
            backward(plain, batch, labels, dtype)
            with_topk, _ = norms(plain)
            assert 0.1 * with_topk <= predictor <= 10 * with_topk
        optimizer.step()


def old_merge(slimmer: PatchSlimmer, patches: Tensor, own: Tensor, guides: Tensor, seed: int) -> Tensor:
    """The merge of the earlier code: the decision enters as logits − (1 − D)·1e10."""
    learned = slimmer.scorers[0](patches)
    cosines = F.normalize(torch.cat([own[:, None], guides], 1), dim=-1) @ F.normalize(patches, dim=-1).mT
    cosines = min_max(cosines)
    score = 0.5 * learned + 0.25 * (cosines[:, 1] + cosines[:, 2] + 2 * cosines[:, 0])
    index = stable_top(score, 12)
    generator = torch.Generator().manual_seed(seed)
    decision = decide(score, index, estimator="gumbel", training=True, generator=generator).gather(1, index)
    kept = patches.gather(1, index[..., None].expand(-1, -1, patches.shape[-1]))
    logits = slimmer.merger.logits(kept).transpose(1, 2) - (1 - decision)[:, None] * 1e10
    return logits.softmax(-1) @ kept


def test_log_mask_has_the_forward_value_of_the_old_mask_without_its_gradient():
    torch.manual_seed(0)
    slimmer = PatchSlimmer(32, num_patches=24, estimator="gumbel").train()
    patches, vectors = streams(B=8, N=24, C=32)
    own, guides, patches = vectors[:, 0], vectors[:, 1:], patches[:, 0]
    head = torch.randn(8, 4, 32)

    def predictor_norm(merged: Tensor) -> float:
        slimmer.zero_grad()
        (merged * head).mean().backward()
        return torch.cat([p.grad.flatten() for p in slimmer.scorers.parameters()]).norm().item()

    old = old_merge(slimmer, patches, own, guides, seed=1)
    generator = torch.Generator().manual_seed(1)
    new = slimmer(patches, own, guides, generator=generator).tokens[:, :-1]
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
    slimmer = PatchSlimmer(12, keep_ratio=0.25, merged_tokens=2, beta=0.0, estimator=estimator, tau=0.3)
    head = nn.Linear(12, 4)
    optimizer = torch.optim.Adam([*slimmer.parameters(), *head.parameters()], lr=1e-2)
    vectors = torch.zeros(32, 12)
    for _ in range(steps):
        patches, labels, _ = signal(32, 16, 12, generator)
        tokens = slimmer(patches, vectors).tokens[:, :-1]
        optimizer.zero_grad()
        F.cross_entropy(head(tokens.mean(1)), labels).backward()
        optimizer.step()
    patches, _, marked = signal(32, 16, 12, generator)
    decision = slimmer.eval()(patches, vectors).selection.decision
    return decision.gather(1, marked).mean().item()


def test_the_choice_is_learned_through_the_decision():
    kept = {estimator: share_of_marked_kept(estimator) for estimator in ("topk", "gumbel", "soft_topk")}
    assert kept["soft_topk"] > 0.6
    assert kept["gumbel"] > 0.6
    assert kept["topk"] < 0.4  # 4 of 16 are kept: chance is 0.25, and nothing teaches it better


def test_copies_of_a_trained_slimmer_agree():
    model = Classifier()
    batch = streams(N=24, C=32)
    assert torch.equal(copy.deepcopy(model)(*batch), model(*batch))
