"""Faults of rows and identities: duplicates, leaks, too few, wrong modalities, queries without a match."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from slimreid.data.manifest import SPLITS, ImageRef, Manifest, Protocol, Sample
from slimreid.data.problems import Problem
from slimreid.data.splits import place


def duplicates(manifest: Manifest) -> Iterator[Problem]:
    """Rows given twice, and images that are said to show two identities or lie in train and test."""
    seen: dict[tuple[str, ImageRef], Sample] = {}
    owner: dict[ImageRef, Sample] = {}
    for sample in manifest.samples:
        reported = False
        for name, image in sample.images.items():
            twin = seen.setdefault((sample.split, image), sample)
            if twin is not sample and not reported:
                where = f"{image.path} ({name}) is in row {twin.row} of the same split already"
                yield Problem(
                    "error", sample.row, f"duplicate: {where}", "remove one of the two rows", "duplicate"
                )
                reported = True
            other = owner.setdefault(image, sample)
            if other.identity != sample.identity and not reported:
                message = f"{image.path} is '{sample.identity}' here, '{other.identity}' in row {other.row}"
                cure = "an image shows one identity: correct one of them"
                yield Problem("error", sample.row, message, cure, "two identities")
                reported = True


def leaks(manifest: Manifest) -> Iterator[Problem]:
    """Identities that are in two of train, val and test."""
    part = {"train": "train", "val": "val", "query": "test", "gallery": "test"}
    first: dict[str, dict[str, Sample]] = defaultdict(dict)
    for sample in manifest.samples:
        first[sample.identity].setdefault(part[sample.split], sample)
    for identity, parts in first.items():
        if len(parts) > 1:
            row = list(parts.values())[-1].row
            message = f"identity '{identity}' is in {' and '.join(parts)}"
            yield Problem("error", row, message, "keep each identity in one of train, val and test", "leak")


def lonely(manifest: Manifest) -> Iterator[Problem]:
    """Training identities with a single image."""
    train = manifest.select("train")
    counts = Counter(s.identity for s in train)
    for sample in train:
        if counts[sample.identity] == 1:
            message = f"training identity '{sample.identity}' has one image only"
            yield Problem(
                "warning", sample.row, message, "it teaches little: add images or drop it", "single"
            )


def too_few_identities(manifest: Manifest) -> Iterator[Problem]:
    """Parts to be searched that hold one identity only, so that every answer is correct."""
    for split in ("val", "gallery"):
        rows = manifest.select(split)
        if len({s.identity for s in rows}) != 1:
            continue
        effect = ", so the first epoch is always the best" if split == "val" else ""
        message = f"{split} has one identity ('{rows[0].identity}'): every ranking is correct{effect}"
        yield Problem("warning", rows[0].row, message, f"put at least two identities into {split}")


def unmatched_modalities(manifest: Manifest) -> Iterator[Problem]:
    """Parts of the data that are compared with each other or trained for each other, but see other things."""
    seen: dict[str, dict[str, Sample]] = {
        split: {name: sample for sample in reversed(manifest.select(split)) for name in sample.images}
        for split in SPLITS
    }
    pairs = (("train", "val"), ("train", "query"), ("train", "gallery"), ("query", "gallery"))
    for first, second in pairs:
        if not seen[first] or not seen[second]:
            continue
        here, there = (" and ".join(m for m in manifest.modalities if m in seen[s]) for s in (first, second))
        new = [name for name in seen[second] if name not in seen[first]]
        row = seen[second][new[0]].row if new else None
        if seen[first].keys().isdisjoint(seen[second]):
            message = f"{first} has {here} only and {second} has {there} only"
            cure = f"{first} and {second} need a modality in common"
            yield Problem("error", row, message, cure)
        elif new and first == "train":
            message = f"{' and '.join(new)} of {second} is never seen in train"
            cure = "add training images of it or leave the column out with --modalities"
            yield Problem("warning", row, message, cure)


def unmatched(manifest: Manifest, protocol: Protocol) -> Iterator[Problem]:
    """Queries that the protocol leaves without any correct match in the gallery."""
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
            f"write the true {protocol} of each row, or add a column protocol that says none in every row",
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
        level: Literal["error", "warning"] = "warning" if any(found) else "error"
        yield Problem(level, first[identity].row, message, cure, f"{title} {reason}")


def _counts_as_match(query: Sample, candidate: Sample, protocol: Protocol) -> bool:
    if protocol == "none":
        return dict(query.images) != dict(candidate.images)
    return place(query, protocol) != place(candidate, protocol)
