"""Damaged and hostile files through the commands and readers: no traceback, no hang, no silent change.

    python benchmarks/fuzz.py                     # 5,000 cases and more, all kinds of files
    python benchmarks/fuzz.py --cases 300 --only images model --seed 7
    python benchmarks/fuzz.py --first 1000 --cases 500    # a piece of a longer run

A small dataset is generated and a tiny model trained on it. Each case damages one of their files by a draw
from its number and the seed, and reads it as a command would, in a child process that is ended after 20
seconds. A case ends in one of

| end        | meaning                                                                                |
|------------|----------------------------------------------------------------------------------------|
| fine       | the file was still good: an exit code of 0                                             |
| refused    | an error of ours that names the cause                                                  |
| traceback  | any other exception                                                                    |
| hang       | no end within 20 seconds                                                               |
| memory     | more than 2 GB                                                                         |
| different  | accepted, but another result, where a checksum should have told (model, embeddings, …) |
| died       | the process was ended by a signal                                                      |

The exit code is 1 if any case ended in one of the last five; each is printed with its number.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image

from mutations import mutate_bytes, mutate_json, mutate_text, place_special
from slimreid.backbones.weight_files import read_weights
from slimreid.cli.app import main as slimreid
from slimreid.config.files import load_config
from slimreid.data.images.decode import read_image
from slimreid.errors import SlimReIDError
from slimreid.inference.embedding_sets.files import read_embeddings
from slimreid.inference.load import load

SECONDS = 20.0
MEGABYTES = 2000
BAD = ("traceback", "hang", "memory", "different", "died")
WORLD = (
    "--identities", "8", "--cameras", "2", "--images-per-camera", "2", "--size", "32x16", "--workers", "1",
)  # fmt: skip
TINY = (
    "--transforms.height", "32", "--transforms.width", "16", "--transforms.pad", "2", "--batch.num_ids", "2",
    "--batch.num_instances", "2", "--data.workers", "0", "--model.backbone", "nano", "--train.epochs", "2",
    "--optim.warmup_epochs", "1", "--train.select_on", "last",
)  # fmt: skip

Mutate = Callable[[Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """One kind of file, how it is damaged, and what reads it."""

    name: str
    file: Path
    """The good file; the damaged one takes its place in a copy of the folder it is in."""
    folder: Path
    mutate: Mutate | None
    """None puts a special file (FIFO, device, sparse, ...) in its place."""
    read: Callable[[Path, Path], Any]
    """Called with the copied folder and the damaged file."""
    strict: bool = False
    """Whether an accepted file must give the same result as the untouched one."""
    share: int = 1
    """How often it is drawn."""


@dataclass(frozen=True)
class Outcome:
    """How a case ended."""

    number: int
    target: str
    end: str
    detail: str = ""


class RefusedError(Exception):
    """A command ended with an error of ours."""


def command(*words: str | Path) -> str:
    """Run a command; returns what it printed, raises `RefusedError` with its error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = slimreid([str(word) for word in words])
    if "Traceback" in err.getvalue():
        raise RuntimeError(err.getvalue()[-2000:])
    if code:
        raise RefusedError(err.getvalue())
    return out.getvalue()


def make_bench(folder: Path) -> tuple[Path, Path]:
    """A generated world and a run on it, evaluated."""
    world, run = folder / "world", folder / "run"
    command("data", "synth", world, *WORLD)
    command("train", "--data.manifest", world, "--out", run, *TINY)
    command("evaluate", run, "--workers", "0")
    return world, run


def targets(folder: Path, world: Path, run: Path) -> list[Target]:
    """Everything that can be damaged, for a world and a run on it."""
    found = [*image_targets(folder / "images", world), *text_targets(folder / "texts", world, run)]
    found += [*model_targets(folder / "models", world, run), *run_targets(run)]
    return found


def image_targets(folder: Path, world: Path) -> Iterator[Target]:
    """Pictures of every documented format to the decoder, and one of a dataset to the commands."""
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (32, 16, 3), dtype=np.uint8)
    smooth = Image.fromarray(pixels).resize((48, 96), Image.Resampling.BICUBIC)
    deep = Image.fromarray(np.asarray(smooth.convert("L")).astype(np.uint16) * 200)
    pictures = {"a.jpg": smooth, "a.png": smooth, "a.bmp": smooth, "a.webp": smooth, "a.tif": smooth}
    for name, picture in (pictures | {"deep.png": deep, "deep.tif": deep}).items():
        place = folder / name.replace(".", "_")
        place.mkdir()
        picture.save(place / name)
        yield Target(f"images: {name}", place / name, place, mutate_bytes, _decode, share=12)
    yield Target("images: special", place / name, place, None, _decode, share=4)
    image = next(iter(sorted(world.rglob("*.jpg")) or sorted(world.rglob("*.png"))))
    yield Target("images: check", image, world, mutate_bytes, _check, share=6)
    yield Target("images: check special", image, world, None, _check, share=2)


def _decode(_: Path, file: Path) -> str:
    return hashlib.sha256(read_image(file).tobytes()).hexdigest()


def _check(folder: Path, _: Path) -> str:
    return command("data", "check", folder, "--json")


def text_targets(folder: Path, world: Path, run: Path) -> Iterator[Target]:
    """Manifests and configs."""
    yield Target("manifest: check", world / "manifest.csv", world, mutate_text, _check, share=12)
    folder.mkdir(parents=True)
    config = Path(shutil.copy(run / "config.yaml", folder / "config.yaml"))
    yield Target(
        "config: load", config, folder, mutate_text, lambda _, file: str(load_config([file])), share=30
    )
    nowhere = folder / "nowhere"
    train = ("--data.manifest", nowhere, "--out", folder / "never")
    yield Target(
        "config: train", config, folder, mutate_text, lambda _, file: command("train", file, *train), share=10
    )


def model_targets(folder: Path, world: Path, run: Path) -> Iterator[Target]:
    """The model's file, a file of embeddings, and an old checkpoint."""
    folder.mkdir(parents=True)
    picture = np.random.default_rng(1).integers(0, 256, (32, 16, 3), dtype=np.uint8)

    def embed(_: Path, file: Path) -> str:
        loaded = load(file)
        features = loaded.embed([{loaded.modalities[0]: picture}])
        return hashlib.sha256(np.ascontiguousarray(features).tobytes()).hexdigest() + str(loaded.card)

    for name in ("model", "embeddings", "pth"):
        (folder / name).mkdir()
    model = Path(shutil.copy(run / "model.safetensors", folder / "model" / "model.safetensors"))
    yield Target("model: load", model, model.parent, mutate_bytes, embed, strict=True, share=12)
    embeddings = folder / "embeddings" / "features.safetensors"
    command("embed", world, "--model", run, "--out", embeddings, "--workers", "0")
    yield Target(
        "embeddings", embeddings, embeddings.parent, mutate_bytes, _embeddings, strict=True, share=20
    )
    old = folder / "pth" / "old.pth"
    torch.manual_seed(0)
    state = {f"BACKBONE.base.blocks.{n}.weight": torch.randn(4, 4) for n in range(6)}
    torch.save({"state_dict": state, "epoch": 3, "best": 0.5}, old)
    yield Target("pth: weights", old, old.parent, mutate_bytes, _weights, share=16)
    yield Target("pth: load", old, old.parent, mutate_bytes, lambda _, file: load(file), share=4)


def _embeddings(_: Path, file: Path) -> str:
    found = read_embeddings(file)
    return hashlib.sha256(found.features.tobytes()).hexdigest() + repr(
        {k: v for k, v in vars(found).items() if k != "features"}
    )


def _weights(_: Path, file: Path) -> None:
    read_weights(file)


def run_targets(run: Path) -> Iterator[Target]:
    """Every text file of a run, read by the commands that read runs."""
    for file in sorted(path for path in run.rglob("*") if path.suffix in (".json", ".jsonl", ".yaml")):
        name = file.relative_to(run).as_posix()
        mutate = mutate_text if file.suffix == ".yaml" else mutate_json
        yield Target(f"run: compare {name}", file, run, mutate, _compare)
        if "evaluation" not in name:
            yield Target(f"run: resume {name}", file, run, mutate, _resume)
    for file in sorted((run / "checkpoints").rglob("*.safetensors")):
        name = file.relative_to(run).as_posix()
        yield Target(f"run: resume {name}", file, run, mutate_bytes, _resume, strict=True, share=2)


def _compare(folder: Path, _: Path) -> str:
    return command("compare", folder, "--skip-speed", "--samples", "20")


def _resume(folder: Path, _: Path) -> str:
    """Goes on where nothing is left to do, after the model was lost."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    command("train", "--config", folder / "config.yaml", "--out", folder, "--resume", "auto")
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def run_case(target: Target, number: int, seed: int, expected: Any) -> tuple[str, str]:
    """Damage, read, judge; returns the end and a detail."""
    draw = Random(f"{seed} {number} {target.name}")
    with tempfile.TemporaryDirectory(prefix="fuzz") as place:
        folder = Path(shutil.copytree(target.folder, Path(place) / target.folder.name))
        file = folder / target.file.relative_to(target.folder)
        if target.mutate is None:
            place_special(draw, file)
        else:
            file.write_bytes(target.mutate(draw, file.read_bytes()))
        reset_peak()
        try:
            result = target.read(folder, file)
        except (SlimReIDError, RefusedError) as error:
            end, detail = "refused", str(error)[:200]
        except Exception:
            end, detail = "traceback", traceback.format_exc()[-1500:]
        else:
            same = not target.strict or result == expected
            end, detail = ("fine", "") if same else ("different", "accepted with another result")
        if (peak := peak_megabytes()) > MEGABYTES:
            end, detail = "memory", f"{peak} MB"
        if target.mutate is None and file.is_fifo():
            file.unlink()
    return end, detail


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_megabytes() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) // 1024
    return 0


def serve(pipe: Connection, chosen: Sequence[Target], seed: int, expected: dict[str, Any]) -> None:
    """A child: runs the cases it is told, one after the other."""
    limit = 12 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with contextlib.suppress(EOFError):
        while (number := pipe.recv()) is not None:
            target = chosen[number % len(chosen)]
            pipe.send(run_case(target, number, seed, expected.get(target.name)))
    os._exit(0)


class Child:
    """A process that runs cases; a new one takes its place after a hang or a death."""

    def __init__(self, chosen: Sequence[Target], seed: int, expected: dict[str, Any]) -> None:
        self.arguments = (chosen, seed, expected)
        self.start()

    def start(self) -> None:
        """Fork a new process."""
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, *self.arguments), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, number: int) -> tuple[str, str]:
        """The end of a case and a detail."""
        self.pipe.send(number)
        try:
            if self.pipe.poll(SECONDS):
                end: tuple[str, str] = self.pipe.recv()
                return end
            end = ("hang", f"no end within {SECONDS:.0f} s")
        except EOFError:
            self.process.join()
            end = ("died", f"exit code {self.process.exitcode}")
        self.close()
        self.start()
        return end

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def fuzz(all_targets: Sequence[Target], cases: int, seed: int = 0, first: int = 0) -> Iterator[Outcome]:
    """Run `cases` cases from number `first`; target and damage follow from the number and the seed."""
    expected = {}
    for target in all_targets:
        if target.strict:
            with tempfile.TemporaryDirectory(prefix="fuzz") as place:
                folder = Path(shutil.copytree(target.folder, Path(place) / target.folder.name))
                expected[target.name] = target.read(folder, folder / target.file.relative_to(target.folder))
    chosen = [target for target in all_targets for _ in range(target.share)]
    Random(seed).shuffle(chosen)
    child = Child(chosen, seed, expected)
    try:
        for number in range(first, first + cases):
            yield Outcome(number, chosen[number % len(chosen)].name, *child.run(number))
    finally:
        child.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print a table; 1 if anything bad happened."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=5500)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only", nargs="+", default=[], help="beginnings of targets' names, e.g. images model"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="fuzz-bench") as place:
        chosen = targets(Path(place), *make_bench(Path(place)))
        chosen = [t for t in chosen if not options.only or t.name.startswith(tuple(options.only))]
        for outcome in fuzz(chosen, options.cases, options.seed, options.first):
            counts.setdefault(outcome.target, Counter())[outcome.end] += 1
            if outcome.end in BAD:
                print(
                    f"case {outcome.number} ({outcome.target}): {outcome.end}\n{outcome.detail}", flush=True
                )
    total: Counter[str] = Counter()
    for name, ends in sorted(counts.items()):
        print(f"{name:50} " + ", ".join(f"{count} {end}" for end, count in ends.most_common()))
        total += ends
    print(
        f"{sum(total.values())} cases: "
        + ", ".join(f"{total[end]} {end}" for end in ("fine", "refused", *BAD))
    )
    return 1 if any(total[end] for end in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
