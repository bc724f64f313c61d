"""`slimreid export`: a trained model as a folder that onnxruntime runs."""

from __future__ import annotations

from pathlib import Path

from slimreid.cli.console import MB, console, print_table, say, table
from slimreid.cli.options.export import ExportOptions
from slimreid.exporting.export import export as export_model
from slimreid.inference.exported_card import ExportedCard


def export(options: ExportOptions) -> None:
    """Write graphs and weights of a model, check them against it, and show how they compare."""
    card = export_model(
        options.model,
        options.out,
        precision=options.precision,
        data=options.data,
        max_loss=options.max_loss,
        force=options.force,
        overwrite=options.overwrite,
    )
    _print_card(card, options.out)
    for fault in card.check["faults"]:
        say(f"warning: the check failed: {fault}")
    say(f"written: {options.out}")


def _print_card(card: ExportedCard, folder: Path) -> None:
    """Say what was written and how it compares with the original."""
    size = sum((folder / name).stat().st_size for name in card.files)
    rows: list[tuple[str, object]] = [
        ("precision", card.precision),
        ("modalities", "+".join(card.modalities)),
        ("graphs", len(card.graphs)),
        ("MB", f"{size / MB:.1f}"),
        ("feature", ", ".join(f"{kind} {channels:,}" for kind, channels in card.sizes.items())),
        ("checked on", card.check["source"]),
    ]
    if card.precision == "int8":
        rows.insert(1, ("in float32", ", ".join(card.float_layers) or "no linear layer"))
    if accuracy := card.check["accuracy"]:
        found = accuracy["difference"]
        interval = f" ({100 * found['low']:+.2f} … {100 * found['high']:+.2f})" if found else ""
        rows += [
            ("mAP, %", "{:.2f} → {:.2f}".format(*(100 * value for value in accuracy["map"]))),
            ("mAP gained", f"{-accuracy['loss_points']:+.2f} points{interval}"),
            ("rank-1, %", "{:.2f} → {:.2f}".format(*(100 * value for value in accuracy["rank1"]))),
        ]
    console.print(table(["export", ""], rows))
    stages = (f"same patches, stage {n + 1}" for n in range(len(card.stages)))
    columns = ["modalities", "smallest cosine", *stages]
    agreements = []
    for each in card.check["agreements"]:
        seen = "+".join(each["subset"]) + (" (noise)" if each["noise"] else "")
        agreements.append((seen, f"{each['cosine']:.6f}", *(f"{share:.2%}" for share in each["kept"])))
    print_table(columns, agreements)
