"""The options of a config on the command line: recipes, YAML files and one option per key."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from slimreid.compat.demo_options import demo_config_options, take_pairs
from slimreid.config import Config
from slimreid.config.files import build_config, flat_values, options_of, read_config_file, section_help
from slimreid.config.recipes import find_config
from slimreid.config.values import parse_value

MAIN_OPTIONS = (
    "data.manifest",
    "data.modalities",
    "model.backbone",
    "model.pretrained",
    "model.reduction",
    "train.epochs",
    "train.init_from",
    "batch.num_ids",
    "optim.lr",
    "seed",
)
"""Options that `--help` shows; `--help-all` shows all."""
_DEMO = "--demo-config"


def add_config_arguments(parser: ArgumentParser, *, every_option: bool) -> None:
    """Add `--config`, `--print-config`, `--list` and one option per key of a config.

    Options other than the main ones work too, but only `every_option` shows them in the help.
    """
    group = parser.add_argument_group("recipes and config files")
    group.add_argument(
        "--config",
        metavar="FILE",
        action="append",
        default=[],
        help="YAML file or recipe; may be repeated, later ones win.",
    )
    group.add_argument("--list", action="store_true", help="List the recipes.")
    group.add_argument("--print-config", action="store_true", help="Print all options as YAML and stop.")
    group.add_argument(
        "--help-all", action="store_true", help=f"Show all {len(options_of(Config))} options of a config."
    )
    about = section_help(Config)
    groups: dict[str, Any] = (
        {} if every_option else {"": parser.add_argument_group("main options of the config")}
    )
    for option in options_of(Config):
        section = option.key.partition(".")[0] if "." in option.key and every_option else ""
        if section not in groups:
            groups[section] = parser.add_argument_group(section or "config", about.get(section))
        shown = every_option or option.key in MAIN_OPTIONS
        help_ = f"{option.help.rstrip('.')} (default: {_default(option.default)}).".replace("%", "%%")
        groups[section].add_argument(
            f"--{option.key}", metavar="", default=SUPPRESS, help=help_ if shown else SUPPRESS
        )


def _default(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_default(item) for item in value)}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value) or "none"


def read_config(parsed: Namespace, pairs: Sequence[str]) -> Config:
    """The config that parsed arguments describe: DeMo's options, then files in order, then options.

    Raises `ConfigError` naming the file or option.
    """
    values: dict[str, Any] = {}
    if getattr(parsed, "demo_config", None):
        values |= flat_values(demo_config_options(parsed.demo_config, pairs))
    for name in [*([parsed.recipe] if parsed.recipe else []), *parsed.config]:
        values |= read_config_file(find_config(name))
    for option in options_of(Config):
        if option.key in parsed:
            values[option.key] = parse_value(getattr(parsed, option.key), option.type, option.key)
    return build_config(values)


def split_demo_pairs(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Words without DeMo's KEY VALUE pairs, and the pairs; there are none without `--demo-config`."""
    if not any(word.partition("=")[0] == _DEMO for word in words):
        return list(words), []
    return take_pairs(words)
