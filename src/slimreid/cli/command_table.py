"""All commands: their options, the function that does the work, and one line of help."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slimreid.cli.options import data, export, gallery, images, measuring, serving, training


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
        training.QuickstartOptions,
        "quickstart:quickstart",
        "Generate a small dataset, search it, train and evaluate three models, and write a report.",
    ),
    "train": Command(training.TrainOptions, "train:train", "Train a model, or continue a run."),
    "evaluate": Command(
        measuring.EvaluateOptions, "evaluate:evaluate", "Evaluate retrieval with a trained model."
    ),
    "embed": Command(
        images.EmbedOptions,
        "embed:embed",
        "Compute features of all images of a dataset or folder into one file.",
    ),
    "search": Command(
        images.SearchOptions,
        "search:search",
        "Find the samples of a folder that are most similar to given images.",
    ),
    "adapt": Command(
        export.AdaptOptions,
        "adapt:adapt",
        "Adapt a model to the cameras of a site with images that nobody has labelled.",
    ),
    "compare": Command(
        measuring.CompareOptions,
        "compare:compare",
        "Compare trained models in one table; runs that differ only in the seed share a row.",
    ),
    "ablate": Command(
        training.AblateOptions,
        "ablate:ablate",
        "Train every combination of some options with several seeds; compare.",
    ),
    "report": Command(
        measuring.ReportOptions,
        "compare:report",
        "Write one HTML page on trained models: metrics, curves, examples.",
    ),
    "profile": Command(
        measuring.ProfileOptions,
        "profile:profile",
        "Measure parameters, GFLOPs, tokens per block, latency, throughput and memory.",
    ),
    "show": Command(
        images.ShowOptions,
        "show:show",
        "Draw the patches a model kept in a sample, with --rank also its rank list.",
    ),
    "export": Command(
        export.ExportOptions,
        "export:export",
        "Export a trained model to ONNX, checked against the original; it runs without torch.",
    ),
    "import-demo": Command(
        training.ImportDemoOptions, "train:import_demo", "Turn a DeMo config and checkpoint into a run."
    ),
    "data": Group(
        "Generate, import, check and view datasets.",
        {
            "synth": Command(
                data.SynthOptions, "data.images:synth", "Generate a synthetic rgb/nir/tir dataset."
            ),
            "import": Command(
                data.ImportOptions, "data.tables:import_", "Read a dataset folder into a manifest."
            ),
            "check": Command(
                data.CheckOptions,
                "data.tables:check",
                "Check a manifest and its files; exit code 1 if there are errors.",
            ),
            "simulate": Command(
                data.SimulateOptions,
                "data.images:simulate",
                "Simulate nir and tir images for an rgb dataset.",
            ),
            "sheet": Command(
                data.SheetOptions,
                "data.images:sheet",
                "Draw a few identities, each from several cameras, in one picture.",
            ),
            "preview": Command(
                data.PreviewOptions,
                "data.images:preview",
                "Draw training batches as the model will see them.",
            ),
        },
    ),
    "gallery": Group(
        "Enrol people or vehicles, search for them and say who a new sample shows.",
        {
            "create": Command(
                gallery.CreateOptions,
                "gallery.making:create",
                "Make an empty gallery for the features of a model.",
            ),
            "enrol": Command(
                gallery.EnrolOptions,
                "gallery.making:enrol",
                "Enrol a manifest, a folder per identity, or image files.",
            ),
            "search": Command(
                gallery.GallerySearchOptions,
                "gallery.asking:search",
                "Find the rows or identities most similar to given images.",
            ),
            "calibrate": Command(
                gallery.CalibrateOptions,
                "gallery.asking:calibrate",
                "Find thresholds with a known rate of false positives.",
            ),
            "identify": Command(
                gallery.IdentifyOptions,
                "gallery.asking:identify",
                "Say who images show: a name, not sure, or unknown.",
            ),
            "list": Command(gallery.GalleryListOptions, "gallery.looking:list_", "List the identities."),
            "show": Command(gallery.RowsOptions, "gallery.looking:show", "Show rows."),
            "check": Command(
                gallery.GalleryCheckOptions,
                "gallery.looking:check",
                "Check the store; list rows to look at (exit code 1 if any).",
            ),
            "log": Command(gallery.LogOptions, "gallery.looking:log", "Show who changed and searched what."),
            "remove": Command(
                gallery.RemoveOptions, "gallery.changing:remove", "Take rows out, or erase them for good."
            ),
            "rename": Command(
                gallery.RenameOptions, "gallery.changing:rename", "Give an identity another name."
            ),
            "merge": Command(gallery.MergeOptions, "gallery.changing:merge", "Make several identities one."),
            "split": Command(
                gallery.SplitOptions,
                "gallery.changing:split",
                "Make rows of an identity an identity of their own.",
            ),
            "cluster": Command(
                gallery.ClusterOptions,
                "gallery.changing:cluster",
                "Propose identities for rows that have none.",
            ),
            "assign": Command(
                gallery.AssignOptions, "gallery.changing:assign", "Give rows the identities of a table."
            ),
            "undo": Command(gallery.UndoOptions, "gallery.changing:undo", "Undo the last changes."),
            "export": Command(
                gallery.GalleryExportOptions, "gallery.moving:export", "Write everything into a Parquet file."
            ),
            "import": Command(
                gallery.GalleryImportOptions, "gallery.moving:import_", "Take in the rows of Parquet files."
            ),
            "copy": Command(
                gallery.CopyOptions,
                "gallery.moving:copy",
                "Copy into another file or server, checked row by row.",
            ),
            "reembed": Command(
                gallery.ReembedOptions,
                "gallery.making:reembed",
                "Compute all features anew with another model.",
            ),
        },
    ),
    "model": Group(
        "List backbones and show what a model costs.",
        {
            "summary": Command(
                measuring.SummaryOptions,
                "profile:summary",
                "Show parameters, GFLOPs, tokens per stage and feature sizes.",
            ),
            "list": Command(measuring.ListOptions, "profile:list_", "List the named backbones."),
        },
    ),
    "serve": Group(
        "Serve a gallery: a page to search it, an HTTP interface for programs.",
        {
            "token": Group(
                "Tokens: who may use a service, and for what.",
                {
                    "add": Command(
                        serving.TokenAddOptions, "serve:add", "Make a token and show it, this once."
                    ),
                    "list": Command(serving.TokenListOptions, "serve:list_", "List the tokens."),
                    "revoke": Command(serving.TokenRevokeOptions, "serve:revoke", "Make a token invalid."),
                },
            ),
        },
        own=Command(
            serving.ServeOptions,
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
