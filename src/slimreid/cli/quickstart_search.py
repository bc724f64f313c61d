"""The first thing the quickstart shows: a search with the model that ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from slimreid.config.model import DEFAULT_MODEL
from slimreid.inference.embed_dataset import embed_dataset
from slimreid.inference.features.data import open_data
from slimreid.inference.features.extract import Extraction
from slimreid.inference.load import load
from slimreid.inference.search import Answer, search
from slimreid.visual.ranks.search_sheet import draw_answers

TOP = 5
"""Answers that are shown."""


def first_search(world: Path, picture: Path) -> str:
    """Search the first query of a dataset among images of other cameras; draw and tell what is found."""
    loaded = load(DEFAULT_MODEL, threads=1)
    data = open_data(loaded, world)
    samples = data.manifest.samples
    asked = next(sample for sample in samples if sample.split == "query")
    others = [s for s in samples if s.split == "gallery" and s.camera != asked.camera]
    options = Extraction(workers=0, batch=16, show_progress=False)
    query, gallery = (
        embed_dataset(loaded, replace(data, manifest=data.manifest.with_samples(rows)), extraction=options)[0]
        for rows in ([asked], others)
    )
    answers = search(query, gallery, TOP)
    draw_answers(answers, loaded, picture)
    return told(asked.identity, answers[0], picture)


def told(identity: str, answer: Answer, picture: Path) -> str:
    """`who is 57? 57 57 12 57 57 among 160 (quickstart/search.png)`."""
    found = " ".join(hit.identity for hit in answer.hits)
    return f"who is {identity}? {found} among {answer.searched} ({picture})"
