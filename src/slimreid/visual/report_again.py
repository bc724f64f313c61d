"""How to do it again: the commands behind a report, in the order in which they are typed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from slimreid.config_io import CONFIG_NAME, config_text
from slimreid.data.manifest import MANIFEST_NAME, read_manifest
from slimreid.data.synthetic.generate import DESCRIPTION
from slimreid.data.synthetic.options import SynthOptions
from slimreid.data.synthetic.world import VAL_IDENTITIES
from slimreid.errors import SlimReIDError
from slimreid.evaluation.features import feature_kinds
from slimreid.evaluation.rerank import KReciprocal
from slimreid.visual.report_html import Section, element, folded, join, paragraph
from slimreid.visual.report_run import ReportRun, run_names, shown_path

Runs = Sequence[ReportRun]
Moved = dict[Path | None, str]
"""Folder of a world -> where it is made again."""


def reproduce_section(runs: Runs, out: str) -> Section:
    """The commands that lead to this page, and the full config of each run."""
    parts: list[object] = [
        paragraph(
            "Type these where this page was made: everything new goes to a folder of its own, and the last "
            "command writes this page again. With the same versions, device and number of threads training "
            "repeats exactly; elsewhere figures move a little."
        ),
        element("pre", element("code", "\n".join(again_commands(runs, Path(out).name)))),
    ]
    for run in runs:
        typed = [_typed(start["command"]) for start in run.starts if start.get("command")]
        if typed:
            shown = element("code", "; then ".join(typed))
            parts.append(paragraph(f"{run.name} was started with ", shown, class_="faint"))
    for run in runs:
        text = config_text(run.loaded.config)
        parts.append(folded(f"Config of {run.name}", element("pre", element("code", text.rstrip()))))
    return Section("reproduce", "Do it again", "Reproduce", join(*parts))


def again_commands(runs: Runs, page: str) -> list[str]:
    """Make the worlds that can be made, train and evaluate each run, write the page: one line each.

    Everything goes to a folder that is not there yet, where data and runs have the names they have in the
    report. Data that cannot be made, and models without their config, are used where they are.
    """
    folder = _new_folder("again")
    worlds = _worlds(runs)
    roots = list(worlds)
    names = run_names(roots) if roots else []
    moved: Moved = {root: f"{folder}/data/{name}" for root, name in zip(roots, names, strict=True)}
    lines = [shlex.join(["slimreid", "data", "synth", moved[root], *worlds[root]]) for root in roots]
    made = []
    for run in runs:
        place = shown_path(run.path)
        if config := _config(run):
            place = f"{folder}/runs/{run.name}"
            words = ["slimreid", "train", "--config", shown_path(config)]
            if trained_on := moved.get(_root(_trained_on(run))):
                words += ["--data.manifest", trained_on]
            lines.append(shlex.join([*words, "--output", place]))
        made.append(place)
        lines.append(shlex.join(["slimreid", "evaluate", place, *_evaluate_options(run), *_data(run, moved)]))
    other = next((words for run in runs if (words := _data(run, moved))), [])
    lines.append(shlex.join(["slimreid", "report", *made, "--out", f"{folder}/{page}", *other]))
    return lines


def _new_folder(name: str) -> str:
    """`name`, or `name-2` and so on: the first that is not there."""
    number, found = 1, name
    while Path(found).exists():
        number += 1
        found = f"{name}-{number}"
    return found


def _config(run: ReportRun) -> Path | None:
    """The config file of a run; None for a model without one."""
    path = run.loaded.path.parent / CONFIG_NAME
    return path if path.is_file() else None


def _trained_on(run: ReportRun) -> Path | None:
    """The manifest or folder that the config of a run names."""
    given = run.loaded.config.data.manifest
    return Path(given) if given else None


def _root(manifest: Path | None) -> Path | None:
    """The folder whose manifest.csv is meant; None for a manifest of another name."""
    if manifest is None:
        return None
    if manifest.name == MANIFEST_NAME:
        return manifest.resolve().parent
    return manifest.resolve() if manifest.is_dir() else None


def _worlds(runs: Runs) -> dict[Path, list[str]]:
    """Folder of each synthetic world that the runs were trained or measured on, and how it was made."""
    found: dict[Path, list[str]] = {}
    for run in runs:
        # A model that cannot be trained again stays on the data where it is: its card names no other place.
        trained_on = _trained_on(run) if _config(run) else None
        for manifest in (trained_on, None if run.data.own else run.data.path):
            root = _root(manifest)
            if root is not None and root not in found and (options := _world_options(root)):
                found[root] = options
    return found


def _world_options(root: Path) -> list[str] | None:
    """Options of `slimreid data synth` that make a world; None where that command did not make it."""
    try:
        made = json.loads((root / DESCRIPTION).read_text(encoding="utf-8"))["options"]
        manifest = read_manifest(root)
        options = SynthOptions(**made)
    except (OSError, ValueError, KeyError, TypeError, SlimReIDError):
        return None
    if options.test_share != SynthOptions.test_share:  # Python alone can choose it
        return None
    words = []
    for key in ("identities", "cameras", "images_per_camera", "seed", "objects", "difficulty"):
        words += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    words += ["--size", "x".join(map(str, options.image_size))]
    held = len({s.identity for s in manifest.select("val")})
    everybody = len({s.identity for s in manifest.select("train", "val")})
    if held != max(2, round(VAL_IDENTITIES * everybody)):
        words += ["--val-identities", f"{held / max(1, everybody):g}"]
    return words


def _evaluate_options(run: ReportRun) -> list[str]:
    """What was asked for beside the usual."""
    evaluation = run.evaluation
    words = ["--missing", "all"]
    if set(evaluation.features) != set(feature_kinds(run.loaded.model, "all")):
        words += ["--features", evaluation.main]
    if evaluation.protocol != run.manifest.protocol:
        words += ["--protocol", evaluation.protocol]
    if rerank := evaluation.rerank:
        words.append("--rerank")
        names = {"k1": "--rerank-k1", "k2": "--rerank-k2", "original_weight": "--rerank-lambda"}
        for key, option in names.items():
            if getattr(rerank, key) != getattr(KReciprocal, key):
                words += [option, f"{getattr(rerank, key):g}"]
    if any("left out for broken files" in note for note in evaluation.notes):
        words.append("--skip-broken")
    return words


def _data(run: ReportRun, moved: Moved) -> list[str]:
    """The option that names the data, where it is not that of the run."""
    if run.data.own:
        return []
    root = _root(run.data.path)
    return ["--data", moved[root] if root in moved else shown_path(run.data.path)]


def _typed(command: Sequence[object]) -> str:
    """A recorded command line as it was typed."""
    return shlex.join(["slimreid", *map(str, command[1:])])
