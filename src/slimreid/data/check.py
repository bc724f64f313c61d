"""Finding every mistake in a dataset before a run does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slimreid.console import progress
from slimreid.data.decode import read_images
from slimreid.data.manifest import SPLITS, ImageRef, Manifest, Problem, Protocol, Sample, parse_manifest
from slimreid.data.splits import place
from slimreid.errors import DataError

Size = tuple[int, int]


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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "ok": not self.errors}


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
    sizes, file_problems = _open_all(manifest, show_progress)
    problems += file_problems
    problems += _misaligned(manifest, sizes)
    problems += _duplicates(manifest)
    problems += _leaks(manifest)
    problems += _unmatched(manifest, protocol)
    problems += _lonely(manifest)
    problems.sort(key=lambda p: (p.level, p.row or 0))
    return CheckReport(
        protocol, manifest.origin, tuple(_counts(manifest)), _count_sizes(manifest, sizes), tuple(problems)
    )


def _open_all(manifest: Manifest, show_progress: bool | None) -> tuple[dict[ImageRef, Size], list[Problem]]:
    """Decode every image once; sizes of the good ones, problems of the others."""
    rows: dict[tuple[ImageRef, ...], Sample] = {}
    for sample in manifest.samples:  # query and gallery may share images
        rows.setdefault(tuple(sample.images.values()), sample)

    def read(sample: Sample) -> tuple[dict[ImageRef, Size], list[Problem]]:
        found, faults = {}, []
        for name, image in sample.images.items():
            try:
                height, width = read_images({name: image}, manifest.root)[name].shape[:2]
                found[image] = (width, height)
            except DataError as error:
                message, _, cure = str(error).rpartition("; ")
                faults.append(
                    Problem("error", sample.row, message or cure, cure if message else "copy it again")
                )
        return found, faults

    sizes: dict[ImageRef, Size] = {}
    problems: list[Problem] = []
    with ThreadPoolExecutor() as pool:
        results = pool.map(read, rows.values())
        for found, faults in progress(results, "opening images", len(rows), show_progress):
            sizes |= found
            problems += faults
    return sizes, problems


def _misaligned(manifest: Manifest, sizes: Mapping[ImageRef, Size]) -> Iterator[Problem]:
    for sample in manifest.samples:
        known = {name: sizes[image] for name, image in sample.images.items() if image in sizes}
        if len(set(known.values())) < 2:
            continue
        (first, (width, height)), *others = known.items()
        text = ", ".join(f"{name} {w}×{h}" for name, (w, h) in known.items())
        same_shape = all(abs(w * height - h * width) <= max(w, h, width, height) for _, (w, h) in others)
        if same_shape:
            cure = "this works, but check that they show the same field of view"
            yield Problem("warning", sample.row, f"sizes differ: {text}", cure)
        else:
            cure = f"crop or resize all spectra of a sample to the shape of {first}"
            yield Problem("error", sample.row, f"shapes differ: {text}", cure)


def _duplicates(manifest: Manifest) -> Iterator[Problem]:
    """Rows given twice, and images that are said to show two identities or lie in train and test."""
    seen: dict[tuple[str, ImageRef], Sample] = {}
    owner: dict[ImageRef, Sample] = {}
    for sample in manifest.samples:
        reported = False
        for name, image in sample.images.items():
            twin = seen.setdefault((sample.split, image), sample)
            if twin is not sample and not reported:
                where = f"{image.path} ({name}) is in row {twin.row} of the same split already"
                yield Problem("error", sample.row, f"duplicate: {where}", "remove one of the two rows")
                reported = True
            other = owner.setdefault(image, sample)
            if other.identity != sample.identity and not reported:
                message = f"{image.path} is '{sample.identity}' here, '{other.identity}' in row {other.row}"
                yield Problem(
                    "error", sample.row, message, "an image shows one identity; correct one of them"
                )
                reported = True


def _leaks(manifest: Manifest) -> Iterator[Problem]:
    """Identities that are in two of train, val and test."""
    part = {"train": "train", "val": "val", "query": "test", "gallery": "test"}
    first: dict[str, dict[str, Sample]] = defaultdict(dict)
    for sample in manifest.samples:
        first[sample.identity].setdefault(part[sample.split], sample)
    for identity, parts in first.items():
        if len(parts) > 1:
            row = list(parts.values())[-1].row
            message = f"identity '{identity}' is in {' and '.join(parts)}"
            yield Problem("error", row, message, "keep each identity in one of train, val and test")


def _unmatched(manifest: Manifest, protocol: Protocol) -> Iterator[Problem]:
    """Queries that the protocol leaves without any right answer in the gallery."""
    for queries, gallery, title in (
        (manifest.select("query"), manifest.select("gallery"), "query"),
        (manifest.select("val"), manifest.select("val"), "val"),
    ):
        if not queries:
            continue
        if not gallery:
            yield Problem("error", queries[0].row, "there are queries but no gallery", "add gallery rows")
            continue
        yield from _unmatched_in(queries, gallery, title, protocol)


def _unmatched_in(
    queries: Sequence[Sample], gallery: Sequence[Sample], title: str, protocol: Protocol
) -> Iterator[Problem]:
    places = {place(s, protocol) for s in (*queries, *gallery)}
    if protocol != "none" and len(places) == 1:
        value = next(iter(places))
        said = f"all have {protocol} '{value}'" if value else f"none has a {protocol}"
        yield Problem(
            "error",
            queries[0].row,
            f"{title}: {said}, and the {protocol} protocol ignores matches from the same {protocol}, "
            f"so no query can be answered",
            f"write the true {protocol} of each row, or use --protocol none",
        )
        return
    partners = defaultdict(list)
    for sample in gallery:
        partners[sample.identity].append(sample)
    answered: dict[str, list[bool]] = defaultdict(list)
    first: dict[str, Sample] = {}
    for query in queries:
        first.setdefault(query.identity, query)
        answered[query.identity].append(
            any(_counts_as_match(query, g, protocol) for g in partners[query.identity])
        )
    for identity, found in answered.items():
        lost = len(found) - sum(found)
        if not lost:
            continue
        reason = (
            "the gallery does not have it" if not partners[identity] else f"only from the same {protocol}"
        )
        message = f"{title} identity '{identity}': {lost} of {len(found)} queries without a match ({reason})"
        cure = f"add gallery rows from another {protocol}, correct the {protocol}s, or drop these queries"
        yield Problem("warning" if any(found) else "error", first[identity].row, message, cure)


def _counts_as_match(query: Sample, candidate: Sample, protocol: Protocol) -> bool:
    if protocol == "none":
        return dict(query.images) != dict(candidate.images)
    return place(query, protocol) != place(candidate, protocol)


def _lonely(manifest: Manifest) -> Iterator[Problem]:
    train = manifest.select("train")
    counts = Counter(s.identity for s in train)
    for sample in train:
        if counts[sample.identity] == 1:
            message = f"training identity '{sample.identity}' has one image only"
            yield Problem("warning", sample.row, message, "it teaches little: add images or drop it")


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
