"""Queries that the evaluation protocol leaves without a correct answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal

from slimreid.data.manifest import Manifest, Protocol, Sample
from slimreid.data.problems import Problem
from slimreid.data.splits import place


def unmatched(manifest: Manifest, protocol: Protocol) -> Iterator[Problem]:
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
