"""The model card of a built-in model: what it is, figures from JSON files, what it must not be used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from look_results import LookResult, read_result
from looks import CLEAN

from slimreid.evaluation.reports.formatting import markdown_table, points
from slimreid.files import write_text

TEXT = Path(__file__).with_name("ship_card.md")
"""What does not depend on figures; sections begin with `## `."""
FIGURES = "## Limits"
"""Section before which the figures are put."""


def write_card(root: Path, name: str, figures: Mapping[str, Any] | None, looks: Sequence[Path]) -> list[Path]:
    """Write the card into the documentation, and into the folder of the model where it is there."""
    text = card(figures, [read_result(path) for path in looks])
    targets = [root / "docs" / f"{name}.md"]
    folder = root / "src" / "slimreid" / "pretrained" / name
    if folder.is_dir():
        targets.append(folder / "README.md")
    for path in targets:
        write_text(path, text)
    return targets


def card(figures: Mapping[str, Any] | None, looks: Sequence[LookResult]) -> str:
    """The whole card; sections whose figures are not given are left out."""
    before, _, after = TEXT.read_text(encoding="utf-8").partition(FIGURES)
    parts = [_made(figures), _subsets(figures)] if figures else []
    parts += [_looks(result) for result in looks]
    middle = "".join(f"{part}\n\n" for part in parts)
    return f"{before}{middle}{FIGURES}{after}"


def _made(figures: Mapping[str, Any]) -> str:
    model, packed = figures["model"], figures["packed"]
    height, width = model["size"]
    rows = [
        ("backbone", f"{model['backbone']}, {model['parameters'] / 1e6:.1f} million parameters"),
        ("image size", f"{height}×{width}"),
        ("token reduction, fusion", f"{model['reduction']}, {model['fusion']}"),
        ("trained on", f"{model['identities']:,} identities; {model['origin']}"),
        ("in the package", f"{packed['bytes'] / 1e6:.1f} MB, float32 and int8 together"),
        ("layers in float32 with int8", ", ".join(packed["int8"]["float_layers"]) or "none"),
        ("weights (SHA-256)", f"`{model['weights']}`"),
    ]
    return "## Specification\n\n" + markdown_table(("", ""), rows, numbers=False).strip()


def _subsets(figures: Mapping[str, Any]) -> str:
    found = figures["subsets"]
    first = next(iter(next(iter(found.values())).values()))
    rows = [
        (
            subset,
            *(cell for each in found.values() for cell in (_interval(each[subset]), _points(each[subset]))),
        )
        for subset in next(iter(found.values()))
    ]
    head = ("modalities", *(f"{precision}, {what}" for precision in found for what in ("mAP", "rank-1")))
    return (
        f"## Any subset of the modalities\n\nHeld-out identities of {figures['data']}, "
        f"{first['queries']:,} queries among {first['gallery']:,} samples, both in the same modalities; "
        "in parentheses the 95 % interval over identities. `nir` and `tir` are simulated.\n\n"
        + markdown_table(head, rows, numbers=False).strip()
    )


def _looks(result: LookResult) -> str:
    rows = [
        (
            name,
            _interval(vars(look)),
            points(look.rank1),
            "" if name == CLEAN else f"{result.share(name):.0%}",
            "–" if look.false_match_rate != look.false_match_rate else f"{look.false_match_rate:.1%}",
        )
        for name, look in result.looks.items()
    ]
    return (
        f"## Other looks: {result.name}\n\nThe same people with one degradation each, and at simulated sites "
        "where every camera has its own (research/other_looks.py). The last column is the share of false "
        "pairs that reach the threshold for 1 % on clean images.\n\n"
        + markdown_table(("look", "mAP", "rank-1", "of clean", "false matches"), rows, numbers=False).strip()
    )


def _interval(values: Mapping[str, Any]) -> str:
    return f"{points(values['map'])} ({points(values['low'])}–{points(values['high'])})"


def _points(values: Mapping[str, Any]) -> str:
    return points(values["rank1"])
