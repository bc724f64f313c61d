"""Aligned triples per second: decode, resize and augment, against a straight Pillow loop.

Both sides do the same work in one process with one thread: three JPEG files per sample, bicubic resize
to 256×128, flip, pad and crop, normalise, random erasing. The Pillow loop treats each modality on its
own, as earlier code did. Rounds alternate, and the median ratio is reported.

    python benchmarks/data_loading.py [--samples 64] [--rounds 9] [--json]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter

from slimreid.cli.console import console, table
from slimreid.config import DataConfig, TransformConfig
from slimreid.data.augment.transforms import ERASE_AREA, ERASE_ASPECT
from slimreid.data.dataset import ReIDDataset
from slimreid.data.manifest import ImageRef, Manifest, Sample
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.profiling.latency import measure_interleaved, medians

HEIGHT, WIDTH = 256, 128
PAD = 10


def make_files(folder: Path, samples: int, size: tuple[int, int]) -> Manifest:
    """JPEG files with natural-looking detail (smoothed noise at several scales)."""
    rng = np.random.default_rng(0)
    height, width = size
    rows = []
    for number in range(samples):
        images = {}
        for name in DEFAULT_MODALITIES:
            layers = [
                gaussian_filter(rng.normal(size=(height, width, 3)), (s, s, 0)) * s for s in (1, 4, 16, 48)
            ]
            noise = np.sum(layers, axis=0)
            pixels = np.clip(128 + 60 * noise / noise.std(), 0, 255).astype(np.uint8)
            path = f"{number}_{name}.jpg"
            Image.fromarray(pixels).save(folder / path, quality=90)
            images[name] = ImageRef(path)
        rows.append(Sample("train", str(number), "1", "", images))
    return Manifest(tuple(rows), DEFAULT_MODALITIES, folder)


def pillow_sample(manifest: Manifest, sample: Sample, config: TransformConfig) -> list[torch.Tensor]:
    """The usual way: every modality decoded, resized and augmented by itself."""
    tensors = []
    (height, width), pad = config.size, config.pad
    for image in sample.images.values():
        picture = Image.open(manifest.file(image)).convert("RGB")
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        if random.random() < config.flip:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        padded = Image.new("RGB", (width + 2 * pad, height + 2 * pad))
        padded.paste(picture, (pad, pad))
        left, top = random.randint(0, 2 * pad), random.randint(0, 2 * pad)
        picture = padded.crop((left, top, left + width, top + height))
        x = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float().div(255)
        x = (x - torch.tensor([0.5] * 3)[:, None, None]) / torch.tensor([0.5] * 3)[:, None, None]
        if random.random() < config.erase:
            for _ in range(10):
                area = random.uniform(*ERASE_AREA) * height * width
                ratio = math.exp(random.uniform(*(math.log(a) for a in ERASE_ASPECT)))
                h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
                if h < height and w < width:
                    y, z = random.randint(0, height - h), random.randint(0, width - w)
                    x[:, y : y + h, z : z + w] = torch.empty(3, h, w).normal_()
                    break
        tensors.append(x)
    return tensors


def measure(size: tuple[int, int], samples: int, rounds: int) -> dict[str, float]:
    """Median triples per second of each way on files of `size` (height, width)."""
    config = TransformConfig(height=HEIGHT, width=WIDTH, pad=PAD)
    with tempfile.TemporaryDirectory() as folder:
        manifest = make_files(Path(folder), samples, size)
        exact = ReIDDataset(manifest, ("train",), config, train=True)
        scaled = ReIDDataset(manifest, ("train",), config, train=True, data=DataConfig(scaled_decode=True))
        ways = {
            "pillow": lambda i: pillow_sample(manifest, manifest.samples[i], config),
            "slimreid": lambda i: exact[i],
            "slimreid, scaled decode": lambda i: scaled[i],
        }
        passes = {name: partial(all_of, load, samples) for name, load in ways.items()}
        seconds = medians(measure_interleaved(passes, rounds))
    return {name: samples / seconds[name] for name in ways}


def all_of(load: Callable[[int], object], samples: int) -> None:
    for i in range(samples):
        load(i)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        f"{height}×{width} JPEG": measure((height, width), options.samples, options.rounds)
        for height, width in ((512, 256), (256, 128))
    }
    if options.json:
        print(json.dumps(results, indent=2, ensure_ascii=False))
        return
    rows = [
        (source, name, f"{rate:.0f}", f"{rate / rates['pillow']:.2f}×")
        for source, rates in results.items()
        for name, rate in rates.items()
    ]
    console.print(
        table(["files", "way", "triples/s", "ratio"], rows, f"decode + augment to {HEIGHT}×{WIDTH}")
    )


if __name__ == "__main__":
    main()
