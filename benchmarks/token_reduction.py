"""Slimming of all modalities at once against a straightforward version that does them one by one.

    python benchmarks/token_reduction.py [--threads 1] [--repeats 21] [--compile] [--json]

The straightforward version is what one writes first: for each modality three similarities, each of
which normalises the patches again, a full sort, a gather of the kept and one of the dropped patches,
and a merge masked by a large constant. Both get the same parameters and inputs; tokens and gradients
are compared before anything is timed. The bound is the time of the matrix products alone, with their
outputs allocated beforehand. Repetitions are interleaved, so that a busy machine is busy for all;
ratios are medians of the ratios within one repetition.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.profiling.latency import measure_interleaved, median_ratios, medians
from slimreid.token_reduction import AfterBackboneReducer
from slimreid.token_reduction.merge import merged_count
from slimreid.token_reduction.select import kept_count

MODALITIES = ("rgb", "nir", "tir")
BETA, KEEP, MERGE = 0.25, 0.5, 0.4
OPTIONS = AfterBackboneConfig(
    score_terms=("learned", "self", "cross"), keep_ratio=KEEP, merge_ratio=MERGE, beta=BETA
)


class PlainSelection(nn.Module):
    """Score, sort and gather one modality."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.predictor = nn.Sequential(nn.Linear(dim, dim // 4), nn.GELU(), nn.Linear(dim // 4, 1))

    def forward(
        self, patches: Tensor, own: Tensor, first: Tensor, second: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Kept patches, leftover token and mask."""
        B, N, C = patches.shape
        learned = torch.sigmoid(self.predictor(patches)).squeeze(-1)
        score = (1 - 2 * BETA) * learned + BETA * (unit(first) + unit(second) + 2 * unit(own))
        K = max(1, math.ceil(N * KEEP))
        values, order = torch.sort(score, dim=1, descending=True)
        mask = torch.zeros_like(score).scatter(1, order[:, :K], 1.0).gather(1, order[:, :K])
        kept = torch.gather(patches, 1, order[:, :K, None].expand(-1, -1, C))
        dropped = torch.gather(patches, 1, order[:, K:, None].expand(-1, -1, C))
        weights = F.softmax(values[:, K:], dim=1).unsqueeze(-1)
        return kept, (dropped * weights).sum(1, keepdim=True), mask


class PlainMerge(nn.Module):
    """Merge the kept patches of one modality."""

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        hidden = int(0.2 * dim)
        self.weight = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, tokens)
        )
        self.scale = nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, kept: Tensor, mask: Tensor) -> Tensor:
        """Merged tokens."""
        logits = self.weight(kept).transpose(1, 2) * self.scale
        logits = logits - (1 - mask.unsqueeze(1)) * 1e10
        return torch.bmm(F.softmax(logits, dim=2), kept)


class PlainSlimming(nn.Module):
    """Three modalities by hand."""

    def __init__(self, dim: int, tokens: int) -> None:
        super().__init__()
        self.rgb, self.nir, self.tir = (PlainSelection(dim) for _ in range(3))
        self.rgb_merge, self.nir_merge, self.tir_merge = (PlainMerge(dim, tokens) for _ in range(3))

    def forward(
        self, r: Tensor, n: Tensor, t: Tensor, rg: Tensor, ng: Tensor, tg: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens per modality."""
        kept, extra, mask = self.rgb(r, likeness(r, rg), likeness(r, ng), likeness(r, tg))
        rgb = torch.cat([self.rgb_merge(kept, mask), extra], dim=1)
        kept, extra, mask = self.nir(n, likeness(n, ng), likeness(n, rg), likeness(n, tg))
        nir = torch.cat([self.nir_merge(kept, mask), extra], dim=1)
        kept, extra, mask = self.tir(t, likeness(t, tg), likeness(t, rg), likeness(t, ng))
        tir = torch.cat([self.tir_merge(kept, mask), extra], dim=1)
        return rgb, nir, tir


def likeness(patches: Tensor, vector: Tensor) -> Tensor:
    return (F.normalize(patches, dim=-1) * F.normalize(vector, dim=-1).unsqueeze(1)).sum(-1)


def unit(values: Tensor) -> Tensor:
    low, high = values.min(1, keepdim=True).values, values.max(1, keepdim=True).values
    return (values - low) / (high - low + 1e-8)


def copy_parameters(source: PlainSlimming, target: AfterBackboneReducer) -> None:
    for name in MODALITIES:
        target.scorers[name].mlp.load_state_dict(getattr(source, name).predictor.state_dict())
        target.mergers[name].load_state_dict(getattr(source, f"{name}_merge").state_dict())


def products(B: int, N: int, C: int) -> list[tuple[Tensor, Tensor]]:
    """Operands of all matrix products of one forward pass."""
    M, K, T = len(MODALITIES), kept_count(N, KEEP), merged_count(N, MERGE, KEEP)
    hidden, narrow = C // 4, int(0.2 * C)
    rows = torch.randn(M * B, N, C)
    kept = torch.randn(M * B, K, C)
    pairs = [(torch.randn(M * B, M, C), rows.transpose(1, 2)), (torch.randn(M * B, 1, N), rows)]
    pairs += [(rows[m * B : (m + 1) * B].reshape(-1, C), torch.randn(hidden, C).t()) for m in range(M)]
    pairs += [(torch.randn(B * N, hidden), torch.randn(1, hidden).t()) for _ in range(M)]
    pairs += [(kept[m * B : (m + 1) * B].reshape(-1, C), torch.randn(narrow, C).t()) for m in range(M)]
    pairs += [(torch.randn(B * K, narrow), torch.randn(T, narrow).t()) for _ in range(M)]
    pairs.append((torch.randn(M * B, T, K), kept))
    return pairs


def with_gradients(pairs: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Add the two products that the gradient of each product takes."""
    extended = list(pairs)
    for a, b in pairs:
        grad = torch.randn(*a.shape[:-1], b.shape[-1])
        extended += [(grad, b.transpose(-1, -2)), (a.transpose(-1, -2), grad)]
    return extended


def multiplier(pairs: list[tuple[Tensor, Tensor]]) -> Callable[[], None]:
    outputs = [a @ b for a, b in pairs]

    @torch.no_grad()
    def run() -> None:
        for (a, b), out in zip(pairs, outputs, strict=True):
            torch.matmul(a, b, out=out)

    return run


def summarise(seconds: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    middle, ratios = medians(seconds), median_ratios(seconds, "straightforward")
    return {
        name: {"median_ms": 1e3 * middle[name], "least_ms": 1e3 * min(values), "speedup": ratios[name]}
        for name, values in seconds.items()
    }


def measure(B: int, N: int, C: int, repeats: int, compiled: bool) -> dict[str, dict[str, dict[str, float]]]:
    torch.manual_seed(0)
    plain = PlainSlimming(C, merged_count(N, MERGE, KEEP))
    fast = AfterBackboneReducer(C, MODALITIES, OPTIONS, num_patches=N)
    copy_parameters(plain, fast)
    modality_first = torch.randn(3, B, N, C).requires_grad_()
    sample_first = modality_first.detach().transpose(0, 1).contiguous().requires_grad_()
    vectors = torch.randn(3, B, C).requires_grad_()
    separate = [t.detach().clone().requires_grad_() for t in (*modality_first, *vectors)]
    leaves = [modality_first, sample_first, vectors, *separate, *plain.parameters(), *fast.parameters()]

    def run_plain() -> Tensor:
        return torch.stack(plain(*separate), 1)

    def run_fast() -> Tensor:
        return fast(modality_first.transpose(0, 1), vectors.transpose(0, 1)).tokens

    def run_turned() -> Tensor:
        return fast(sample_first, vectors.transpose(0, 1)).tokens

    forwards = {"straightforward": run_plain, "slimreid": run_fast, "slimreid, samples first": run_turned}
    if compiled:
        quick = AfterBackboneReducer(C, MODALITIES, OPTIONS, num_patches=N)
        copy_parameters(plain, quick)
        quick.compile(fullgraph=True)
        leaves += quick.parameters()
        forwards["slimreid, compiled"] = lambda: (
            quick(modality_first.transpose(0, 1), vectors.transpose(0, 1)).tokens
        )

    def step(forward: Callable[[], Tensor]) -> Callable[[], None]:
        def run() -> None:
            for leaf in leaves:
                leaf.grad = None
            forward().square().mean().backward()

        return run

    check(forwards, step, separate, modality_first, vectors)
    bound = products(B, N, C)
    quiet = {name: torch.no_grad()(run) for name, run in forwards.items()}
    steps = {name: step(run) for name, run in forwards.items()}
    return {
        "forward": summarise(measure_interleaved({**quiet, "products alone": multiplier(bound)}, repeats)),
        "forward + backward": summarise(
            measure_interleaved({**steps, "products alone": multiplier(with_gradients(bound))}, repeats)
        ),
    }


def check(
    forwards: dict[str, Callable[[], Tensor]],
    step: Callable[[Callable[[], Tensor]], Callable[[], None]],
    separate: list[Tensor],
    patches: Tensor,
    vectors: Tensor,
) -> None:
    """Refuse to time versions that do not compute the same tokens and gradients."""
    expected = forwards["straightforward"]()
    for run in forwards.values():
        torch.testing.assert_close(run(), expected, atol=1e-5, rtol=1e-4)
    step(forwards["straightforward"])()
    grads = torch.stack([t.grad for t in separate[:3]]), torch.stack([t.grad for t in separate[3:]])
    step(forwards["slimreid"])()
    torch.testing.assert_close((patches.grad, vectors.grad), grads, atol=1e-7, rtol=1e-3)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--patches", type=int, default=128)
    parser.add_argument("--channels", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="also time the compiled core")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    results = measure(args.batch, args.patches, args.channels, args.repeats, args.compile)
    if args.json:
        print(json.dumps({"settings": vars(args), "results": results}, indent=2))
        return 0
    print(f"B={args.batch} N={args.patches} C={args.channels} M=3, {args.threads} thread(s)")
    for part, rows in results.items():
        print(f"\n{part:26s} {'median ms':>10s} {'least ms':>10s} {'speed-up':>10s}")
        for name, row in rows.items():
            print(f"{name:26s} {row['median_ms']:10.1f} {row['least_ms']:10.1f} {row['speedup']:9.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
