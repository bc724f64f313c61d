"""All commands: their options, the function that does the work, and one line of help."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from slimreid.cli.options.export import AdaptOptions, ExportOptions
from slimreid.cli.options.gallery import (
    AssignOptions,
    CalibrateOptions,
    ClusterOptions,
    CopyOptions,
    CreateOptions,
    EnrolOptions,
    GalleryCheckOptions,
    GalleryExportOptions,
    GalleryImportOptions,
    GalleryListOptions,
    GallerySearchOptions,
    IdentifyOptions,
    LogOptions,
    MergeOptions,
    ReembedOptions,
    RemoveOptions,
    RenameOptions,
    RowsOptions,
    SplitOptions,
    UndoOptions,
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
from slimreid.cli.options.serving import (
    ServeOptions,
    TokenAddOptions,
    TokenListOptions,
    TokenRevokeOptions,
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
    commands: Mapping[str, Command | Group]
    own: Command | None = None
    """What the first word does where none of the commands follows it."""


Entry: TypeAlias = Command | Group

COMMANDS: Mapping[str, Entry] = {
    "quickstart": Command(
        QuickstartOptions,
        "quickstart:quickstart",
        "Generate a small dataset, search it, train and evaluate three models, and write a report.",
    ),
    "train": Command(TrainOptions, "train:train", "Train a model, or continue a run."),
    "evaluate": Command(EvaluateOptions, "evaluate:evaluate", "Evaluate retrieval with a trained model."),
    "embed": Command(
        EmbedOptions, "embed:embed", "Compute features of all images of a dataset or folder into one file."
    ),
    "search": Command(
        SearchOptions, "search:search", "Find the samples of a folder that are most similar to given images."
    ),
    "adapt": Command(
        AdaptOptions,
        "adapt:adapt",
        "Adapt a model to the cameras of a site with images that nobody has labelled.",
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
        ReportOptions, "compare:report", "Write one HTML page on trained models: metrics, curves, examples."
    ),
    "profile": Command(
        ProfileOptions,
        "profile:profile",
        "Measure parameters, GFLOPs, tokens per block, latency, throughput and memory.",
    ),
    "show": Command(
        ShowOptions, "show:show", "Draw the patches a model kept in a sample, with --rank also its rank list."
    ),
    "export": Command(
        ExportOptions,
        "export:export",
        "Export a trained model to ONNX, checked against the original; it runs without torch.",
    ),
    "import-demo": Command(
        ImportDemoOptions, "train:import_demo", "Turn a DeMo config and checkpoint into a run."
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
                PreviewOptions, "data_images:preview", "Draw training batches as the model will see them."
            ),
        },
    ),
    "gallery": Group(
        "Enrol people or vehicles, search for them and say who a new sample shows.",
        {
            "create": Command(
                CreateOptions, "gallery.making:create", "Make an empty gallery for the features of a model."
            ),
            "enrol": Command(
                EnrolOptions,
                "gallery.making:enrol",
                "Enrol a manifest, a folder per identity, or image files.",
            ),
            "search": Command(
                GallerySearchOptions,
                "gallery.asking:search",
                "Find the rows or identities most similar to given images.",
            ),
            "calibrate": Command(
                CalibrateOptions,
                "gallery.asking:calibrate",
                "Find thresholds with a known rate of false positives.",
            ),
            "identify": Command(
                IdentifyOptions,
                "gallery.asking:identify",
                "Say who images show: a name, not sure, or unknown.",
            ),
            "list": Command(GalleryListOptions, "gallery.looking:list_", "List the identities."),
            "show": Command(RowsOptions, "gallery.looking:show", "Show rows."),
            "check": Command(
                GalleryCheckOptions,
                "gallery.looking:check",
                "Check the store; list rows to look at (exit code 1 if any).",
            ),
            "log": Command(LogOptions, "gallery.looking:log", "Show who changed and searched what."),
            "remove": Command(
                RemoveOptions, "gallery.changing:remove", "Take rows out, or erase them for good."
            ),
            "rename": Command(RenameOptions, "gallery.changing:rename", "Give an identity another name."),
            "merge": Command(MergeOptions, "gallery.changing:merge", "Make several identities one."),
            "split": Command(
                SplitOptions, "gallery.changing:split", "Make rows of an identity an identity of their own."
            ),
            "cluster": Command(
                ClusterOptions, "gallery.changing:cluster", "Propose identities for rows that have none."
            ),
            "assign": Command(
                AssignOptions, "gallery.changing:assign", "Give rows the identities of a table."
            ),
            "undo": Command(UndoOptions, "gallery.changing:undo", "Undo the last changes."),
            "export": Command(
                GalleryExportOptions, "gallery.moving:export", "Write everything into a Parquet file."
            ),
            "import": Command(
                GalleryImportOptions, "gallery.moving:import_", "Take in the rows of Parquet files."
            ),
            "copy": Command(
                CopyOptions, "gallery.moving:copy", "Copy into another file or server, checked row by row."
            ),
            "reembed": Command(
                ReembedOptions, "gallery.making:reembed", "Compute all features anew with another model."
            ),
        },
    ),
    "model": Group(
        "List backbones and show what a model costs.",
        {
            "summary": Command(
                SummaryOptions,
                "profile:summary",
                "Show parameters, GFLOPs, tokens per stage and feature sizes.",
            ),
            "list": Command(ListOptions, "profile:list_", "List the named backbones."),
        },
    ),
    "serve": Group(
        "Serve a gallery: a page to search it, an HTTP interface for programs.",
        {
            "token": Group(
                "Tokens: who may use a service, and for what.",
                {
                    "add": Command(TokenAddOptions, "serve:add", "Make a token and show it, this once."),
                    "list": Command(TokenListOptions, "serve:list_", "List the tokens."),
                    "revoke": Command(TokenRevokeOptions, "serve:revoke", "Make a token invalid."),
                },
            ),
        },
        own=Command(
            ServeOptions,
            "serve:serve",
            "Serve a gallery: a page to search it, an HTTP interface for programs. See also 'serve token'.",
        ),
    ),
}


def find_command(words: Sequence[str]) -> tuple[Entry | None, int]:
    """The command or group that the first words name, and how many words that took; None for neither."""
    entry: Entry | None = None
    commands: Mapping[str, Entry] = COMMANDS
    taken = 0
    while taken < len(words) and words[taken] in commands:
        entry = commands[words[taken]]
        taken += 1
        commands = entry.commands if isinstance(entry, Group) else {}
    if isinstance(entry, Group) and entry.own is not None:
        return entry.own, taken
    return entry, taken


def all_commands(entries: Mapping[str, Entry] = COMMANDS) -> Iterator[Command]:
    """Every command, in groups or not."""
    for entry in entries.values():
        if isinstance(entry, Command):
            yield entry
            continue
        if entry.own is not None:
            yield entry.own
        yield from all_commands(entry.commands)
