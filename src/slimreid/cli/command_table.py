"""All commands: their options, and the function that does the work."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from slimreid.cli.options import data, export, gallery, images, measuring, serving, training


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    options: type
    """Dataclass of its options; what it says of itself is the help of the command."""
    function: str
    """`module:function` under `slimreid.cli.commands`; takes the options, returns the exit code or None."""

    @property
    def help(self) -> str:
        """What the command does, in a line."""
        return self.options.__doc__ or ""

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
    "quickstart": Command(training.QuickstartOptions, "quickstart:quickstart"),
    "train": Command(training.TrainOptions, "train:train"),
    "evaluate": Command(measuring.EvaluateOptions, "evaluate:evaluate"),
    "embed": Command(images.EmbedOptions, "embed:embed"),
    "search": Command(images.SearchOptions, "search:search"),
    "adapt": Command(export.AdaptOptions, "adapt:adapt"),
    "compare": Command(measuring.CompareOptions, "compare:compare"),
    "ablate": Command(training.AblateOptions, "ablate:ablate"),
    "report": Command(measuring.ReportOptions, "compare:report"),
    "profile": Command(measuring.ProfileOptions, "profile:profile"),
    "show": Command(images.ShowOptions, "show:show"),
    "export": Command(export.ExportOptions, "export:export"),
    "import-demo": Command(training.ImportDemoOptions, "train:import_demo"),
    "data": Group(
        "Generate, import, check and view datasets.",
        {
            "synth": Command(data.SynthOptions, "data.images:synth"),
            "import": Command(data.ImportOptions, "data.tables:import_"),
            "check": Command(data.CheckOptions, "data.tables:check"),
            "simulate": Command(data.SimulateOptions, "data.images:simulate"),
            "sheet": Command(data.SheetOptions, "data.images:sheet"),
            "preview": Command(data.PreviewOptions, "data.images:preview"),
        },
    ),
    "gallery": Group(
        "Enrol people or vehicles, search for them and say who a new sample shows.",
        {
            "create": Command(gallery.CreateOptions, "gallery.making:create"),
            "enrol": Command(gallery.EnrolOptions, "gallery.making:enrol"),
            "search": Command(gallery.GallerySearchOptions, "gallery.asking:search"),
            "calibrate": Command(gallery.CalibrateOptions, "gallery.asking:calibrate"),
            "identify": Command(gallery.IdentifyOptions, "gallery.asking:identify"),
            "list": Command(gallery.GalleryListOptions, "gallery.looking:list_"),
            "show": Command(gallery.RowsOptions, "gallery.looking:show"),
            "check": Command(gallery.GalleryCheckOptions, "gallery.looking:check"),
            "log": Command(gallery.LogOptions, "gallery.looking:log"),
            "remove": Command(gallery.RemoveOptions, "gallery.changing:remove"),
            "rename": Command(gallery.RenameOptions, "gallery.changing:rename"),
            "merge": Command(gallery.MergeOptions, "gallery.changing:merge"),
            "split": Command(gallery.SplitOptions, "gallery.changing:split"),
            "cluster": Command(gallery.ClusterOptions, "gallery.changing:cluster"),
            "assign": Command(gallery.AssignOptions, "gallery.changing:assign"),
            "undo": Command(gallery.UndoOptions, "gallery.changing:undo"),
            "export": Command(gallery.GalleryExportOptions, "gallery.making:export"),
            "import": Command(gallery.GalleryImportOptions, "gallery.making:import_"),
            "copy": Command(gallery.CopyOptions, "gallery.making:copy"),
            "reembed": Command(gallery.ReembedOptions, "gallery.making:reembed"),
        },
    ),
    "model": Group(
        "List backbones and show what a model costs.",
        {
            "summary": Command(measuring.SummaryOptions, "profile:summary"),
            "list": Command(measuring.ListOptions, "profile:list_"),
        },
    ),
    "serve": Group(
        "Serve a gallery: a page to search it, an HTTP interface for programs.",
        {
            "token": Group(
                "Tokens: who may use a service, and for what.",
                {
                    "add": Command(serving.TokenAddOptions, "serve:add"),
                    "list": Command(serving.TokenListOptions, "serve:list_"),
                    "revoke": Command(serving.TokenRevokeOptions, "serve:revoke"),
                },
            ),
        },
        own=Command(serving.ServeOptions, "serve:serve"),
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
