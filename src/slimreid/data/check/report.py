"""Everything that is wrong with a dataset, found before a run does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slimreid.data.check.files import Size, misaligned, open_images
from slimreid.data.check.labels import (
    duplicates,
    leaks,
    lonely,
    too_few_identities,
    unmatched,
    unmatched_modalities,
)
from slimreid.data.manifest import SPLITS, ImageRef, Manifest, Protocol, parse_manifest
from slimreid.data.problems import Problem, ProblemGroup, group_problems


@dataclass(frozen=True)
class CheckReport:
    """What a dataset holds and what is wrong with it."""

    protocol: Protocol
    origin: str
    counts: tuple[Mapping[str, Any], ...]
    """Per split: samples, identities, cameras, scenes, and images per modality."""
    sizes: Mapping[str, Mapping[str, int]]
    """Per modality: 'width×height' -> number of images, most frequent first."""
    problems: tuple[Problem, ...] = field(default=())

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that must be mended."""
        return tuple(p for p in self.problems if p.level == "error")

    @property
    def groups(self) -> list[ProblemGroup]:
        """The problems by cause, errors first."""
        return group_problems(self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "ok": not self.errors, "summary": [str(group) for group in self.groups]}


def check_dataset(
    path: Path,
    protocol: Protocol | None = None,
    modalities: Sequence[str] | None = None,
    show_progress: bool | None = None,
) -> CheckReport:
    """Check a manifest and every file in it; `protocol` overrides the manifest's.

    Raises `DataError` only where the table cannot be read at all.
    """
    manifest, problems = parse_manifest(path, modalities)
    protocol = protocol or manifest.protocol
    if not manifest.samples and not problems:
        problems.append(Problem("error", 1, "the manifest has a header but no rows", "add rows"))
    sizes, file_problems = open_images(manifest, show_progress)
    problems += file_problems
    problems += misaligned(manifest, sizes)
    problems += duplicates(manifest)
    problems += leaks(manifest)
    problems += unmatched(manifest, protocol)
    problems += lonely(manifest)
    problems += too_few_identities(manifest)
    problems += unmatched_modalities(manifest)
    problems.sort(key=lambda p: (p.level, p.row or 0))
    return CheckReport(
        protocol, manifest.origin, tuple(_counts(manifest)), _count_sizes(manifest, sizes), tuple(problems)
    )


def _counts(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for split in SPLITS:
        rows = manifest.select(split)
        if rows:
            yield {
                "split": split,
                "samples": len(rows),
                "identities": len({s.identity for s in rows}),
                "cameras": len({s.camera for s in rows}),
                "scenes": len({s.scene for s in rows} - {""}),
                **{name: sum(name in s.images for s in rows) for name in manifest.modalities},
            }


def _count_sizes(manifest: Manifest, sizes: Mapping[ImageRef, Size]) -> dict[str, dict[str, int]]:
    def count(images: Iterable[ImageRef]) -> dict[str, int]:
        found = Counter(sizes[image] for image in images if image in sizes)
        return {f"{w}×{h}": n for (w, h), n in found.most_common()}

    per_name: dict[str, dict[ImageRef, None]] = {name: {} for name in manifest.modalities}
    for sample in manifest.samples:
        for name, image in sample.images.items():
            per_name[name][image] = None
    return {name: count(images) for name, images in per_name.items()}
