"""Training triples per second, from JPEG files to the optimizer step, against a straightforward loop.

Both ways train the same `sdtps` model on `vit_tiny` (256×128, P×K = 8×4, fp32) on the same files, in one
process: decode, augment, forward, losses, backward, AdamW step. The straightforward loop augments each
modality by itself with Pillow, calls a ViT of ordinary torch modules once per modality, slims one modality
after the other with everyday torch operations, finds hard triplets with masks and uses the optimizer as it
comes.
Before measuring, both must give the same loss on the same batch. Steps alternate; medians are reported.

With `--one` it is the Market-1501 recipe instead: `baseline` in one modality, 192×96, P×K = 12×4.

    python benchmarks/training.py [--one] [--rounds 7] [--threads 1] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from data_loading import make_files, pillow_sample
from plain_vit import PlainViT
from slimreid.cli.console import console, table
from slimreid.config import (
    BatchConfig,
    Config,
    DataConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    TransformConfig,
)
from slimreid.config.files import load_config
from slimreid.config.token_reduction import AfterBackboneConfig
from slimreid.data.loader import BatchLoader, train_loader
from slimreid.data.manifest import Manifest
from slimreid.data.sampler import IdentitySampler
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.training.losses import ReIDLoss
from slimreid.training.optimizer import make_optimizer, parameter_groups

COSINE = AfterBackboneConfig(score_terms=("learned", "self", "cross"))
THREE = Config(
    data=DataConfig(workers=0),
    transforms=TransformConfig(height=256, width=128),
    batch=BatchConfig(num_ids=8, num_instances=4),
    model=ModelConfig(backbone="vit_tiny", after_backbone=COSINE),
    optim=OptimConfig(name="adamw", lr=1e-3, backbone_lr=1e-4),
)
MARKET = Path(__file__).parents[1] / "configs" / "market1501" / "baseline.yaml"
IDENTITIES, IMAGES = 16, 4
Batch = tuple[dict[str, Tensor], Tensor]


def slim_one(model: ReIDModel, name: str, patches: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    """Patches (B, N, C) of one modality to tokens (B, N_c + 1, C), step by step."""
    slimmer = model.after_backbone
    B, N, C = patches.shape
    beta, K = slimmer.options.beta, -(-N // 2)
    others = [other for other in model.modalities if other != name]
    score = (1 - 2 * beta) * torch.sigmoid(slimmer.scorers[name].mlp(patches))[..., 0]
    for guide in (name, *others):
        cosine = F.cosine_similarity(patches, vectors[guide][:, None], dim=-1)
        low, high = cosine.amin(1, keepdim=True), cosine.amax(1, keepdim=True)
        weight = 2 * beta if guide == name else 2 * beta / len(others)
        score = score + weight * (cosine - low) / (high - low + 1e-8)
    order = score.argsort(dim=1, descending=True, stable=True)
    kept = patches.gather(1, order[:, :K, None].expand(-1, -1, C))
    dropped = patches.gather(1, order[:, K:, None].expand(-1, -1, C))
    leftover = (score.gather(1, order[:, K:]).softmax(1)[..., None] * dropped).sum(1, keepdim=True)
    merger = slimmer.mergers[name]
    weights = (merger.weight(kept).transpose(1, 2) * merger.scale).softmax(-1)
    return torch.cat([weights @ kept, leftover], dim=1)


def hard_triplet(features: Tensor, identity: Tensor) -> Tensor:
    """Batch-hard triplet loss with soft margin, by masks on a distance matrix."""
    squares = features.pow(2).sum(1)
    distance = (squares[:, None] + squares - 2 * features @ features.t()).clamp_min(1e-12).sqrt()
    same = identity[:, None] == identity
    farthest = distance.masked_fill(~same, float("-inf")).amax(1)
    nearest = distance.masked_fill(same, float("inf")).amin(1)
    return F.softplus(farthest - nearest).mean()


def plain_loss(
    model: ReIDModel, vit: PlainViT, loss: LossConfig, images: Mapping[str, Tensor], identity: Tensor
) -> Tensor:
    """The total loss with one pass per modality."""
    patches, vectors = {}, {}
    for name, image in images.items():
        tokens = vit(image)
        patches[name], vectors[name] = tokens[:, 1:], tokens[:, 0]
    tokens = patches
    if model.after_backbone is not None:
        tokens = {name: slim_one(model, name, patches[name], vectors) for name in patches}
    features = {
        "original": torch.cat(list(vectors.values()), 1),
        model.second: torch.cat([t.mean(1) for t in tokens.values()], 1),
    }
    total = identity.new_zeros((), dtype=torch.float32)
    for name, feature in features.items():
        after, logits = model.heads[name](feature)
        measured = after if loss.metric_feature == "after" else feature
        if loss.metric_norm is not None:
            measured = loss.metric_norm * F.normalize(measured)
        smoothing = loss.label_smoothing
        total = total + loss.identity_weight * F.cross_entropy(logits, identity, label_smoothing=smoothing)
        total = total + loss.metric_weight * hard_triplet(measured, identity)
    return total


def pillow_batches(config: Config, manifest: Manifest) -> Iterator[Batch]:
    """P × K batches for ever, each sample loaded by the Pillow loop."""
    codes = [int(sample.identity) for sample in manifest.samples]
    sampler = IdentitySampler(codes, config.batch.num_ids, config.batch.num_instances)
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        for keys in sampler:
            samples = [pillow_sample(manifest, manifest.samples[k.sample], config.transforms) for k in keys]
            images = {
                name: torch.stack([s[m] for s in samples]) for m, name in enumerate(manifest.modalities)
            }
            yield images, torch.tensor([codes[k.sample] for k in keys])
        epoch += 1


def our_batches(loader: BatchLoader) -> Iterator[Batch]:
    """The same from our loader."""
    epoch = 0
    while True:
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            yield batch.images, batch.identity
        epoch += 1


def build(config: Config, manifest: Manifest) -> ReIDModel:
    torch.manual_seed(0)
    return build_model(config.model, config.transforms.size, manifest.modalities, IDENTITIES).train()


def measure(config: Config, manifest: Manifest, rounds: int) -> dict[str, dict[str, float]]:
    """Median seconds of loading and of the model step, per way."""
    ours, plain = build(config, manifest), build(config, manifest)
    vit = PlainViT(plain.backbone)
    criterion = ReIDLoss(config.loss, ours.branch_weights)

    def our_loss(images: Mapping[str, Tensor], identity: Tensor) -> Tensor:
        return criterion(ours(images), identity)["total"]

    images, identity = next(our_batches(train_loader(config, manifest)))
    with torch.no_grad():
        torch.testing.assert_close(
            our_loss(images, identity),
            plain_loss(plain, vit, config.loss, images, identity),
            rtol=1e-4,
            atol=0,
        )
    ways: dict[str, tuple[Iterator[Batch], Callable[..., Tensor], torch.optim.Optimizer]] = {
        "straightforward": (
            pillow_batches(config, manifest),
            lambda images, identity: plain_loss(plain, vit, config.loss, images, identity),
            torch.optim.AdamW(parameter_groups(plain, config.optim)),
        ),
        "slimreid": (
            our_batches(train_loader(config, manifest)),
            our_loss,
            make_optimizer(ours, config.optim),
        ),
    }
    seconds: dict[str, dict[str, list[float]]] = {name: {"load": [], "step": []} for name in ways}
    for round_ in range(rounds + 1):
        for name, (batches, loss, optimizer) in ways.items():
            start = time.perf_counter()
            images, identity = next(batches)
            loaded = time.perf_counter()
            optimizer.zero_grad()
            loss(images, identity).backward()
            optimizer.step()
            if round_:  # the first one warms up
                seconds[name]["load"].append(loaded - start)
                seconds[name]["step"].append(time.perf_counter() - loaded)
    return {
        name: {
            "load": statistics.median(times["load"]),
            "step": statistics.median(times["step"]),
            "total": statistics.median(map(sum, zip(*times.values(), strict=True))),
        }
        for name, times in seconds.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", action="store_true", help="the recipe for Market-1501, one modality")
    options = parser.parse_args()
    config = load_config([MARKET], ["data.workers=0"]) if options.one else THREE
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        made = make_files(Path(folder), IDENTITIES * IMAGES, config.transforms.size)
        names = config.data.modalities or made.modalities
        samples = (
            replace(sample, identity=str(number // IMAGES), images={n: sample.images[n] for n in names})
            for number, sample in enumerate(made.samples)
        )
        manifest = replace(made.with_samples(samples), modalities=tuple(names))
        results = measure(config, manifest, options.rounds)
    triples = config.batch.num_ids * config.batch.num_instances
    for times in results.values():
        times["samples_per_second"] = triples / times["total"]
        times["ratio"] = results["straightforward"]["total"] / times["total"]
    if options.json:
        print(json.dumps(results, indent=2))
        return
    rows = [
        (name, f"{t['load']:.2f}", f"{t['step']:.2f}", f"{t['samples_per_second']:.1f}", f"{t['ratio']:.2f}×")
        for name, t in results.items()
    ]
    height, width = config.transforms.size
    what = f"{config.model.fusion} on {config.model.backbone}, {height}×{width}, {'+'.join(names)}"
    title = f"{what}, {triples} samples a step, {options.threads} threads"
    console.print(table(["way", "load s", "step s", "samples/s", "ratio"], rows, title))


if __name__ == "__main__":
    main()
