"""The command line: a table of functions, whose parameters are the options."""

from __future__ import annotations

import inspect
import logging
import signal
import sys
from argparse import ArgumentError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import docstring_parser
from jsonargparse import ArgumentParser

from slimreid import __version__
from slimreid.commands import data, model
from slimreid.commands.ablate import ablate
from slimreid.commands.compare import compare
from slimreid.commands.embed import embed
from slimreid.commands.evaluate import evaluate
from slimreid.commands.preview import preview
from slimreid.commands.profile import profile
from slimreid.commands.quickstart import quickstart
from slimreid.commands.report import report
from slimreid.commands.show import show
from slimreid.commands.train import train
from slimreid.complaints import explain
from slimreid.console import errors
from slimreid.errors import ConfigError, SlimReIDError

Command: TypeAlias = Callable[..., int | None]
Commands: TypeAlias = "Mapping[str, Command | tuple[str, Commands]]"

COMMANDS: Commands = {
    "quickstart": quickstart,
    "train": train,
    "evaluate": evaluate,
    "embed": embed,
    "compare": compare,
    "ablate": ablate,
    "report": report,
    "profile": profile,
    "show": show,
    "data": (
        "Make, import, check and look at datasets.",
        {
            "synth": data.synth,
            "import": data.import_,
            "check": data.check,
            "simulate": data.simulate,
            "sheet": data.sheet,
            "preview": preview,
        },
    ),
    "model": (
        "See what models there are and what they cost.",
        {"summary": model.summary, "list": model.list_},
    ),
}


class _Parser(ArgumentParser):
    """Options of commands are written with hyphens, and yes/no options are flags."""

    def add_argument(self, *names: str, **options: Any) -> Any:
        name = names[0]
        if name.startswith("--") and "." not in name and name != "--print_config":
            names = (name.replace("_", "-"),)
            if options.get("type") is bool and options.get("default") is False:
                del options["type"]
                options["action"] = "store_true"
        return super().add_argument(*names, **options)


def _takes_config(command: Command) -> bool:
    return "config" in inspect.signature(command).parameters


def _parser(prog: str, about: str) -> ArgumentParser:
    return _Parser(prog=prog, description=about, exit_on_error=False, allow_abbrev=False)


def _add(parser: ArgumentParser, commands: Commands | Command, words: Sequence[str]) -> None:
    """Give a parser its sub-commands, or the options of its function.

    Only the command that `words` name gets its options: those of training need torch, whose import
    should not slow down the others.
    """
    if callable(commands):
        if _takes_config(commands):
            from slimreid.config_io import add_config_options

            add_config_options(parser)
        lists = _add_lists(parser, commands)
        parser.add_function_arguments(commands, as_group=False, as_positional=True, skip={"config", *lists})
        return
    sub = parser.add_subcommands(required=True, dest="command")
    for name, entry in commands.items():
        about = (inspect.getdoc(entry) or "").splitlines()[0] if callable(entry) else entry[0]
        child = _parser(f"{parser.prog} {name}", about)
        sub.add_subcommand(name, child, help=about)  # before its own sub-commands
        if words and words[0] == name:
            _add(child, entry if callable(entry) else entry[1], words[1:])


_LISTS = {"list[Path]": Path, "list[str]": str}


def _add_lists(parser: ArgumentParser, command: Command) -> list[str]:
    """Add the parameters that are lists, as `RUN RUN ...` or repeated options; returns their names."""
    about = {item.arg_name: item.description for item in docstring_parser.parse(command.__doc__ or "").params}
    found = {name: p for name, p in inspect.signature(command).parameters.items() if p.annotation in _LISTS}
    for name, parameter in found.items():
        kind = _LISTS[parameter.annotation]
        if parameter.default is inspect.Parameter.empty:
            parser.add_argument(name, type=kind, nargs="+", help=about.get(name))
        else:
            default = list(parameter.default)
            parser.add_argument(
                f"--{name}", type=kind, nargs="+", action="extend", default=default, help=about.get(name)
            )
    return list(found)


def _run(commands: Commands, values: Any) -> int:
    """Call the function that the parsed values belong to."""
    name = values.command
    entry, inner = commands[name], values[name]
    if not callable(entry):
        return _run(entry[1], inner)
    names = inspect.signature(entry).parameters
    arguments = {key: getattr(inner, key) for key in names if key != "config"}
    if _takes_config(entry):
        from slimreid.config_io import to_config

        arguments["config"] = to_config(inner)
    return entry(**arguments) or 0


def make_parser(arguments: Sequence[str]) -> tuple[ArgumentParser, list[str]]:
    """The parser for these arguments, and the arguments in the form it takes them.

    Raises `ConfigError` for a config file that cannot be read or has unknown keys, or an old one that is
    refused.
    """
    words = _config_first(list(arguments))
    words = _check_configs(words)
    if words[:1] == ["train"]:
        from slimreid.compat.demo_arguments import expand_demo

        words = ["train", *expand_demo(words[1:])]
    parser = _parser("slimreid", "Re-identification across cameras and spectra, with patch slimming.")
    _add(parser, COMMANDS, words)
    return parser, words


def _check_configs(words: list[str]) -> list[str]:
    """Read the config files ourselves first: the parser does not say which key of a file is unknown.

    Returns the words, with the content of a file in place of its name where some of it is left out.
    """
    command = _find_command(words)
    if not callable(command) or not _takes_config(command):
        return words
    from slimreid.config_io import check_config_file

    checked = list(words)
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name != "--config":
            continue
        if value:
            checked[at] = f"--config={check_config_file(Path(value))}"
        elif at + 1 < len(words):
            checked[at + 1] = check_config_file(Path(words[at + 1]))
    return checked


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code: 0 good, 1 wrong data or a failed check, 2 wrong usage."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] in (["--version"], ["-V"]):
        print(f"slimreid {__version__}")
        return 0
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    with suppress(ValueError):  # not in the main thread: whoever started us handles signals
        signal.signal(signal.SIGTERM, _terminate)
    try:
        parser, arguments = make_parser(arguments)
        if not arguments:
            parser.print_help()
            return 2
        values = parser.instantiate(parser.parse_args(arguments))
        return _run(COMMANDS, values)
    except (ArgumentError, ConfigError) as error:
        _complain(f"{_explained(error, arguments)}\nsee '{_command_words(arguments)} --help'")
        return 2
    except SlimReIDError as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt as error:
        _complain("stopped")
        return 143 if isinstance(error, Terminated) else 130
    except BrokenPipeError:  # e.g. piped into head
        sys.stderr.close()
        return 141
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}; choose another place or mend it")
        return 1


def _config_first(arguments: list[str]) -> list[str]:
    """Let `command file.yaml` stand for `command --config file.yaml`, where a command takes a config."""
    command = _find_command(arguments)
    at = len(_command_words(arguments).split()) - 1
    if not callable(command) or not _takes_config(command) or at >= len(arguments):
        return arguments
    word = arguments[at]
    if word.startswith("-") or not word.endswith((".yaml", ".yml")):
        return arguments
    return [*arguments[:at], "--config", *arguments[at:]]


def _explained(error: Exception, arguments: Sequence[str]) -> str:
    """The complaint, with the nearest option of the command where one is unknown."""
    if not isinstance(error, ArgumentError):
        return str(error)
    command = _find_command(arguments)
    known = []
    if callable(command):
        known = [name.replace("_", "-") for name in inspect.signature(command).parameters]
        if _takes_config(command):
            from slimreid.config_io import known_keys

            known += known_keys()
    return explain(str(error), known)


def _find_command(arguments: Sequence[str]) -> Command | tuple[str, Commands] | None:
    """What the first words name: a command, a group of them, or nothing."""
    entry: Command | tuple[str, Commands] | None = ("", COMMANDS)
    for word in arguments:
        if not isinstance(entry, tuple):
            break
        entry = entry[1].get(word)
    return entry


class Terminated(KeyboardInterrupt):
    """The process was asked to end (SIGTERM); it cleans up as after Ctrl-C."""


def _terminate(*_: object) -> None:
    raise Terminated


def _command_words(arguments: Sequence[str]) -> str:
    """The part of the arguments that names a command."""
    words, commands = ["slimreid"], COMMANDS
    for word in arguments:
        entry = commands.get(word)
        if entry is None:
            break
        words.append(word)
        if callable(entry):
            break
        commands = entry[1]
    return " ".join(words)


def _complain(message: str) -> None:
    errors.print(f"[bold red]error:[/] {message.replace('[', chr(92) + '[')}", soft_wrap=True)
