"""All commands: their options, the function that does the work, and one line of help."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slimreid.cli.options.data import (
    CheckOptions,
    ImportOptions,
    PreviewOptions,
    SheetOptions,
    SimulateOptions,
    SynthOptions,
)
from slimreid.cli.options.images import EmbedOptions, SearchOptions, ShowOptions
from slimreid.cli.options.measuring import (
    CompareOptions,
    EvaluateOptions,
    ListOptions,
    ProfileOptions,
    ReportOptions,
    SummaryOptions,
)
from slimreid.cli.options.training import (
    AblateOptions,
    ImportDemoOptions,
    QuickstartOptions,
    TrainOptions,
)


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    options: type
    """Dataclass of its options."""
    function: str
    """`module:function` under `slimreid.cli.commands`; takes the options, returns the exit code or None."""
    help: str

    def load(self) -> Callable[[Any], int | None]:
        """Import the function: only now, so that help and wrong options need no torch."""
        module, _, name = self.function.partition(":")
        found: Callable[[Any], int | None]
        found = getattr(importlib.import_module(f"slimreid.cli.commands.{module}"), name)
        return found


@dataclass(frozen=True)
class Group:
    """Commands that share a first word."""

    help: str
    commands: Mapping[str, Command]


Entry: TypeAlias = Command | Group

COMMANDS: Mapping[str, Entry] = {
    "quickstart": Command(
        QuickstartOptions,
        "quickstart:quickstart",
        "Generate a small dataset, train and evaluate three models, and write a report.",
    ),
    "train": Command(TrainOptions, "train:train", "Train a model, or continue a run."),
    "evaluate": Command(EvaluateOptions, "evaluate:evaluate", "Evaluate retrieval with a trained model."),
    "embed": Command(
        EmbedOptions, "embed:embed", "Compute features of all images of a dataset or folder into one file."
    ),
    "search": Command(
        SearchOptions, "search:search", "Find the samples of a folder that are most similar to given images."
    ),
    "compare": Command(
        CompareOptions,
        "compare:compare",
        "Compare trained models in one table; runs that differ only in the seed share a row.",
    ),
    "ablate": Command(
        AblateOptions, "ablate:ablate", "Train every combination of some options with several seeds; compare."
    ),
    "report": Command(
        ReportOptions, "report:report", "Write one HTML page on trained models: metrics, curves, examples."
    ),
    "profile": Command(
        ProfileOptions,
        "profile:profile",
        "Measure parameters, GFLOPs, tokens per block, latency, throughput and memory.",
    ),
    "show": Command(
        ShowOptions, "show:show", "Draw the patches a model kept in a sample, with --rank also its rank list."
    ),
    "import-demo": Command(
        ImportDemoOptions, "import_demo:import_demo", "Turn a DeMo config and checkpoint into a run."
    ),
    "data": Group(
        "Generate, import, check and view datasets.",
        {
            "synth": Command(SynthOptions, "data_images:synth", "Generate a synthetic rgb/nir/tir dataset."),
            "import": Command(ImportOptions, "data:import_", "Read a dataset folder into a manifest."),
            "check": Command(
                CheckOptions, "data:check", "Check a manifest and its files; exit code 1 if there are errors."
            ),
            "simulate": Command(
                SimulateOptions, "data_images:simulate", "Simulate nir and tir images for an rgb dataset."
            ),
            "sheet": Command(
                SheetOptions,
                "data_images:sheet",
                "Draw a few identities, each from several cameras, in one picture.",
            ),
            "preview": Command(
                PreviewOptions, "preview:preview", "Draw training batches as the model will see them."
            ),
        },
    ),
    "model": Group(
        "List backbones and show what a model costs.",
        {
            "summary": Command(
                SummaryOptions,
                "model:summary",
                "Show parameters, GFLOPs, tokens per stage and feature sizes.",
            ),
            "list": Command(ListOptions, "model:list_", "List the named backbones."),
        },
    ),
}


def find_command(words: Sequence[str]) -> tuple[Entry | None, int]:
    """The command or group that the first words name, and how many words that took; None for neither."""
    first = COMMANDS.get(words[0]) if words else None
    if isinstance(first, Group) and len(words) > 1 and words[1] in first.commands:
        return first.commands[words[1]], 2
    return first, 1 if first is not None else 0
