"""The model card of an exported model, as a page to read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from slimreid.evaluation.reports.formatting import markdown_table
from slimreid.inference.exported_card import ExportedCard
from slimreid.inference.model_card import CHOSEN_ON_TEST
from slimreid.inference.onnx_engine import CAMERA


def readme(card: ExportedCard) -> str:
    """What a person should know of an exported model before using it, as Markdown."""
    title = "# Exported re-identification model"
    warnings = [f"- **The check failed:** {fault}." for fault in card.check.get("faults", ())]
    if card.model.select_on == "test":
        warnings.append(f"- {CHOSEN_ON_TEST}.")
    about = "\n".join(warnings)  # first of all
    parts = [title, about, _model(card), _use(card), _preprocessing(card), _check(card)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _use(card: ExportedCard) -> str:
    height, width = card.model.config.transforms.size
    inputs = f"one float32 (batch, 3, {height}, {width}) per modality"
    if card.camera_input:
        inputs += f", and `{CAMERA}`, int64 (batch,), −1 for a camera that is not known"
    outputs = ", ".join(f"`{kind}` (batch, {size})" for kind, size in card.sizes.items())
    stages = ", ".join(f"`{name}`" for name in card.stages)
    example = f'model.embed({{"{card.modalities[0]}": ["a.jpg", "b.jpg"]}})'
    return (
        "## Use\n\n"
        f'```python\nimport slimreid\n\nmodel = slimreid.load("this folder")\nfeatures = {example}\n```\n\n'
        f"Without SlimReID, any program with onnxruntime can run a graph. Inputs: {inputs}. "
        f"Outputs: {outputs}; L2-normalise them before comparing."
        + (f" {stages} tell the patches that were kept." if stages else "")
    )


def _model(card: ExportedCard) -> str:
    options = card.model.config.model
    rows = {
        "modalities": ", ".join(card.modalities),
        "backbone": options.backbone,
        "token reduction": options.reduction,
        "fusion": options.fusion,
        "precision": card.precision,
        "layers in float32": ", ".join(f"`{name}`" for name in card.float_layers),
        "training identities": f"{len(card.model.identities):,}",
        "training cameras": f"{len(card.model.cameras):,}",
        "epochs": f"{card.model.epoch}",
        "pixels": card.model.origin,
        "weights (SHA-256)": f"`{card.fingerprint}`",
        "features (SHA-256)": f"`{card.feature_fingerprint}`",
        **{name: f"{value}" for name, value in card.provenance.items()},
    }
    filled = [(name, value) for name, value in rows.items() if value]
    return markdown_table(("", ""), filled, numbers=False).strip()


def _preprocessing(card: ExportedCard) -> str:
    transforms, data = card.model.config.transforms, card.model.config.data
    windows = "".join(
        f"\n   16-bit `{name}`: values {low:g} to {high:g} become 0 to 255."
        for name, (low, high) in (data.windows or {}).items()
    )
    return (
        "## Preprocessing\n\n"
        f"1. Decode to 8-bit RGB; a grey image has its values in all three channels.{windows}\n"
        f"2. Resize to {transforms.height}×{transforms.width} (height × width), {transforms.test_resize} "
        "with anti-aliasing, without keeping the aspect ratio.\n"
        f"3. x / 255, minus {transforms.mean:g}, divided by {transforms.std:g}; channels first.\n\n"
        "A modality that is missing is left out: each subset of the modalities has a graph of its own."
    )


def _check(card: ExportedCard) -> str:
    check = card.check
    if not check:
        return ""
    lines = [f"## Check against the original\n\nOn {check['source']}."]
    if accuracy := check["accuracy"]:
        lines.append(_accuracy(accuracy))
    rows = []
    for each in check["agreements"]:
        seen = "+".join(each["subset"]) + (" (noise)" if each["noise"] else "")
        kept = ", ".join(f"{share:.2%}" for share in each["kept"]) or "–"
        rows.append((seen, f"{each['cosine']:.6f}", f"{each['mean']:.6f}", kept))
    columns = ("modalities", "smallest cosine", "mean cosine", "same patches kept, per stage")
    lines.append(markdown_table(columns, rows).strip())
    if ties := sum(each["ties"] for each in check["agreements"]):
        lowest = min(each["cosine_as_is"] for each in check["agreements"])
        lines.append(
            f"In {ties} of the samples two patches score alike, and rounding kept another one than in the "
            f"original, as it does there from one batch size to another: cosine {lowest:.6f}. The table "
            "compares with the original when it keeps the same one."
        )
    return "\n\n".join(lines)


def _accuracy(accuracy: Mapping[str, Any]) -> str:
    found, (before, after) = accuracy["difference"], accuracy["rank1"]
    interval = f", {100 * found['low']:+.2f} … {100 * found['high']:+.2f}" if found else ""
    rows = [
        ("mAP, %", *_percent(accuracy["map"]), f"{-accuracy['loss_points']:+.2f}{interval}"),
        ("rank-1, %", *_percent(accuracy["rank1"]), f"{100 * (after - before):+.2f}"),
    ]
    sides = f"{accuracy['queries']} queries among {accuracy['gallery']} samples"
    head = f"{sides}, feature `{accuracy['feature']}`:"
    columns = ("", "original", "exported", "difference (95 % interval)")
    return f"{head}\n\n{markdown_table(columns, rows)}".strip()


def _percent(shares: Iterable[float]) -> list[str]:
    return [f"{100 * share:.2f}" for share in shares]
