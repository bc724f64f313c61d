"""The configs that come with SlimReID, by names such as `synthetic/sdtps`."""

from __future__ import annotations

from pathlib import Path

from slimreid.errors import ConfigError

_PACKAGE = Path(__file__).parent
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parents[1] / "configs")
"""Inside an installed package; beside `src` in a checkout, where they are edited."""


def recipes_folder() -> Path:
    """The folder of all shipped configs, wherever SlimReID is installed; raises `ConfigError` without."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise ConfigError(f"{_FOLDERS[0]}: the shipped configs are missing; install SlimReID again")


def recipe_path(name: str) -> Path:
    """The file of the shipped config `dataset/method`; raises `ConfigError` listing those there are."""
    folder = recipes_folder()
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = sorted(p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml"))
        raise ConfigError(f"no shipped config '{name}'; there are {', '.join(known)}")
    return path
