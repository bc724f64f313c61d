"""`slimreid import-demo`: an old config and checkpoint as a run."""

from __future__ import annotations

from slimreid.cli.console import console, say, table
from slimreid.cli.options.training import ImportDemoOptions
from slimreid.compat.demo_run import import_demo as convert


def import_demo(options: ImportDemoOptions) -> None:
    """Turn a DeMo config and checkpoint into a run."""
    found = convert(options.config, options.checkpoint, options.out, pairs=options.set, manifest=options.data)
    card = found.card
    rows: list[tuple[str, object]] = [
        ("backbone", card.config.model.backbone),
        ("fusion", card.config.model.fusion),
        ("image size", "×".join(map(str, card.config.transforms.size))),
        ("identities, cameras", f"{len(card.identities)}, {len(card.cameras)}"),
        ("fingerprint", found.fingerprint[:12]),
    ]
    console.print(table(["imported", ""], rows))
    for note in found.notes:
        say(f"{options.config.name}: {note}")
    say(f"model: {found.model}")
    say(f"next: slimreid evaluate {options.out}" + ("" if options.data else " --data MANIFEST"))
