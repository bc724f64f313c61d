"""Where the figures of a report come from: each fact once, and by run only where runs differ."""

from __future__ import annotations

from collections.abc import Sequence

from slimreid.modalities import describe
from slimreid.runs.reproduce import shown_path
from slimreid.visual.html.parts import Section, Table, section
from slimreid.visual.html.run import ReportRun

Runs = Sequence[ReportRun]

CHOICES = {
    "val": "best on the validation identities",
    "test": "best on the test set itself",
    "last": "the last one, none was chosen",
}
PROTOCOLS = {
    "camera": "camera: a query ignores images of its own identity from its own camera",
    "scene": "scene: a query ignores images of its own identity from its own scene",
    "none": "none: a query ignores only itself",
}


def provenance_section(runs: Runs) -> Section:
    """Data, protocol, checkpoint, versions and machine."""
    common, differing = split_facts({run.name: facts_of(run) for run in runs})
    table = None
    if differing:
        rows = [[name, *values] for name, values in differing.items()]
        table = Table(["", *(run.name for run in runs)], rows)
    values = {"common": common, "differing": table, "several": len(runs) > 1}
    return section("provenance", "Where the figures come from", "Provenance", **values)


def split_facts(facts: dict[str, dict[str, str]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """From {run: {fact: value}}: the facts that all runs share, and the others with a value per run."""
    names = list(dict.fromkeys(name for given in facts.values() for name in given))
    values = {name: [given.get(name, "–") for given in facts.values()] for name in names}
    common = {name: given[0] for name, given in values.items() if len(set(given)) == 1}
    return common, {name: given for name, given in values.items() if name not in common}


def facts_of(run: ReportRun) -> dict[str, str]:
    """Everything that decides the figures of a run, {name: value}."""
    evaluation, config = run.evaluation, run.loaded.config
    height, width = config.transforms.size
    facts = {
        "data": f"{evaluation.dataset} ({shown_path(run.data.path)})",
        "origin of the images": evaluation.origin or "not stated in the manifest",
        "modalities": ", ".join(f"{describe(name).label} ({name})" for name in evaluation.modalities),
        "search": f"{len(evaluation.query):,} queries in a gallery of {len(evaluation.gallery):,}",
        "protocol": PROTOCOLS[evaluation.protocol],
        "trained on": f"{len(run.loaded.identities):,} identities, {len(run.loaded.cameras):,} cameras",
        "epoch": f"{evaluation.epoch} of {config.train.epochs}, {CHOICES[evaluation.select_on]}",
        "model": f"{config.model.backbone}, reduction {config.model.reduction}, fusion {config.model.fusion}",
        "image size": f"{height}×{width} pixels",
        "seed": str(config.seed),
    }
    if speed := run.folder.images_per_second:
        facts["training time"] = f"{run.folder.train_seconds / 60:.1f} min, {speed:.0f} images/s"
    if run.starts:
        last = run.starts[-1]
        versions = last.versions
        shown = [f"{name} {versions[name]}" for name in ("slimreid", "torch", "python") if name in versions]
        commit, *changes = (last.git_commit or "no checkout").split("+")
        facts["software"] = ", ".join(shown)
        facts["source"] = "+".join([commit[:12], *changes])
        facts["machine"] = f"{last.platform}, {last.surroundings.device}"
    facts["weights"] = f"fingerprint {run.loaded.fingerprint[:16]}"
    return facts
