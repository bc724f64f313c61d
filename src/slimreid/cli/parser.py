"""From the words of a command line to a command and its checked options; none of this needs torch."""

from __future__ import annotations

import inspect
import re
from argparse import SUPPRESS, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin

from slimreid import __version__
from slimreid.cli.command_table import COMMANDS, Command, Entry, Group, find_command
from slimreid.cli.config_arguments import add_config_arguments, read_config, split_demo_pairs
from slimreid.cli.options import NOTE, STANDS_FOR
from slimreid.config import Config
from slimreid.config.files import Option, config_text, field_types, options_of
from slimreid.config.recipes import recipe_about, recipe_names
from slimreid.config.values import parse_value, union_members
from slimreid.errors import ConfigError, did_you_mean

PROGRAM = "slimreid"
ABOUT = "Multi-modal re-identification (rgb, nir, tir) with token reduction."
HELP = ("-h", "--help", "--help-all")
_NEGATIVE = re.compile(r"-[0-9.][0-9.e+-]*")


@dataclass(frozen=True)
class Call:
    """A command to run."""

    command: Command
    options: Any


def parse_words(words: Sequence[str]) -> Call | str:
    """What the words of a command line ask for: a command with its options, or a text to print.

    Raises `ConfigError` for an unknown command or option, a missing or wrong value.
    """
    if words[:1] in (["--version"], ["-V"]):
        return f"{PROGRAM} {__version__}"
    entry, taken = find_command(words)
    if not isinstance(entry, Command):
        return _overview(entry, words, taken)
    return _parse_command(entry, words[:taken], words[taken:])


def _parse_command(command: Command, name: Sequence[str], words: Sequence[str]) -> Call | str:
    """A command with its options, or a text to print in its place."""
    has_config = _has_config(command)
    typed = [*name, *words]
    pairs: list[str] = []
    if has_config:
        words, pairs = split_demo_pairs(words)
    words = _with_joined_negatives(words)
    replaced = _replaced(command, words)
    parser = _make_parser(command, name, every_option="--help-all" in words, without=replaced)
    if any(word in HELP for word in words):
        return parser.format_help()
    if has_config and "--list" in words:
        return "\n".join(f"{recipe:<26}{recipe_about(recipe)}" for recipe in recipe_names())
    _check_names(parser, words)
    parsed, rest = parser.parse_known_intermixed_args(list(words))
    if rest:
        raise ConfigError(f"too many arguments: {' '.join(rest)}")
    values = {option.key: _value(option, parsed) for option in _own_options(command) if option.key in parsed}
    if has_config:
        values["config"] = read_config(parsed, pairs)
        if parsed.print_config:
            return config_text(values["config"])
    values |= {argument: values[option] for argument, option in replaced.items()}
    hidden = {"demo_options": pairs, "command": typed}
    values |= {field.name: hidden[field.name] for field in fields(command.options) if field.name in hidden}
    return Call(command, command.options(**values))


def command_words(words: Sequence[str]) -> str:
    """The part of the words that names a command, with the program before it."""
    return " ".join([PROGRAM, *words[: find_command(words)[1]]])


class _Parser(ArgumentParser):
    """Raises `ConfigError` instead of ending the program."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def _overview(entry: Entry | None, words: Sequence[str], taken: int) -> str:
    """The list of commands, of all or of a group; raises `ConfigError` for a word that is none of them."""
    commands = entry.commands if isinstance(entry, Group) else COMMANDS
    rest = words[taken:]
    if rest and rest[0] not in HELP:
        near = did_you_mean(rest[0], commands) or f"; there are {', '.join(commands)}"
        raise ConfigError(f"unknown command '{rest[0]}'{near}")
    program = " ".join([PROGRAM, *words[:taken]])
    about = entry.help if isinstance(entry, Group) else ABOUT
    lines = [f"usage: {program} COMMAND ...", "", about, "", "commands:"]
    lines += [f"  {name:<12}{command.help}" for name, command in commands.items()]
    return "\n".join([*lines, "", f"'{program} COMMAND --help' shows the options of a command."])


def _replaced(command: Command, words: Sequence[str]) -> dict[str, str]:
    """Arguments in whose place an option is given, and that option."""
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    return {
        option.metadata[STANDS_FOR]: option.key
        for option in _own_options(command)
        if STANDS_FOR in option.metadata and option_name(option.key) in given
    }


def _make_parser(
    command: Command, name: Sequence[str], *, every_option: bool, without: Container[str] = ()
) -> ArgumentParser:
    program = " ".join([PROGRAM, *name])
    parser = _Parser(
        prog=program,
        description=command.help,
        allow_abbrev=False,
        add_help=False,
        formatter_class=lambda prog: HelpFormatter(prog, max_help_position=34),
    )
    options = [option for option in _own_options(command) if option.key not in without]
    arguments = [option for option in options if option.required and not option.metadata.get("required")]
    usage = []
    group = parser.add_argument_group("arguments")
    if has_config := _has_config(command):
        group.add_argument("recipe", metavar="RECIPE", nargs="?", help="A recipe by name, or a YAML file.")
    for option in arguments:
        word, several = option.key.upper(), _is_list(option)
        word = re.sub("IES$", "Y", word).removesuffix("S") if several else word
        usage.append(f"{word} [{word} ...]" if several else word)
        group.add_argument(option.key, metavar=word, help=_help(option), nargs="+" if several else None)
    usage += [f"{option_name(o.key)} {_metavar(o)}" for o in options if o.metadata.get("required")]
    group = parser.add_argument_group("options")
    for option in _own_first(options, command.options):
        if option not in arguments:
            _add_option(group, option)
    if has_config:
        usage.append("[RECIPE]")
        add_config_arguments(parser, every_option=every_option)
    group.add_argument("-h", "--help", action="store_true", help="Show this help.")
    parser.usage = " ".join([program, *usage, "[options]"])
    return parser


def _own_first(options: Sequence[Option], kind: type) -> list[Option]:
    """Options in the order of help: those of the command itself before those it shares with others."""
    owners = reversed(list(enumerate(kind.__mro__)))
    place = {key: number for number, owner in owners for key in inspect.get_annotations(owner)}
    return sorted(options, key=lambda option: place[option.key])


def _add_option(group: Any, option: Option) -> None:
    name, help_ = option_name(option.key), _help(option)
    if option.type is bool:
        group.add_argument(name, dest=option.key, action="store_true", default=SUPPRESS, help=help_)
        return
    settings: dict[str, Any] = {"nargs": "+", "action": "extend"} if _is_list(option) else {}
    group.add_argument(
        name,
        dest=option.key,
        metavar=_metavar(option),
        default=SUPPRESS,
        required=bool(option.metadata.get("required")),
        help=help_,
        **settings,
    )


def option_name(key: str) -> str:
    """How an option of a command is written: `rerank_k1` as `--rerank-k1`, `in_` as `--in`."""
    return "--" + key.rstrip("_").replace("_", "-")


def _own_options(command: Command) -> list[Option]:
    """Options of a command apart from those of its config."""
    return [
        option
        for option in options_of(command.options)
        if not option.key.startswith("config.") and not option.metadata.get("hidden")
    ]


def _has_config(command: Command) -> bool:
    return Config in field_types(command.options).values()


def _is_list(option: Option) -> bool:
    return get_origin(option.type) is list


def _value(option: Option, parsed: Namespace) -> Any:
    given = getattr(parsed, option.key)
    if option.type is bool:
        return given
    by_name = not option.required or option.metadata.get("required")
    name = option_name(option.key) if by_name else option.key.upper()
    if _is_list(option):
        (kind,) = get_args(option.type)
        return [parse_value(word, kind, name) for word in given]
    return parse_value(given, option.type, name)


def _help(option: Option) -> str:
    text = " ".join([option.help, *([option.metadata[NOTE]] if NOTE in option.metadata else [])])
    text, default = text.replace("%", "%%"), option.default
    has_none = default is None or default is False or default in ("", [])
    if option.required or has_none or "default:" in text.lower():
        return text
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    return f"{text.rstrip('.')} (default: {shown})."


def _metavar(option: Option) -> str:
    kind = next(member for member in union_members(option.type) if member is not type(None))
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) is tuple:
        return "A,B"
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def _with_joined_negatives(words: Sequence[str]) -> list[str]:
    """`--key -1e-3` as `--key=-1e-3`, so that a negative number is never taken for an option."""
    joined: list[str] = []
    for word in words:
        if _NEGATIVE.fullmatch(word) and joined and joined[-1].startswith("--") and "=" not in joined[-1]:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _check_names(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Raise `ConfigError` for the first unknown option, with the nearest known one."""
    known = [name for action in parser._actions for name in action.option_strings]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and len(name) > 2 and name not in known:
            near = did_you_mean(name.removeprefix("--"), [other.removeprefix("--") for other in known])
            raise ConfigError(f"unknown option '{name.removeprefix('--')}'{near}")
