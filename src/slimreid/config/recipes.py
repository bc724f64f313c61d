"""The configs that come with SlimReID, by names such as `synthetic/sdtps`."""

from __future__ import annotations

from pathlib import Path

from slimreid.errors import ConfigError, nearest_names

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = (_PACKAGE / "configs", _PACKAGE.parents[1] / "configs")
"""Inside an installed package; beside `src` in a checkout, where they are edited."""


def recipes_folder() -> Path:
    """The folder of all recipes, wherever SlimReID is installed; raises `ConfigError` without."""
    for folder in _FOLDERS:
        if folder.is_dir():
            return folder
    raise ConfigError(f"{_FOLDERS[0]}: the recipes are missing; install SlimReID again")


def recipe_names() -> list[str]:
    """Names of all recipes, sorted."""
    folder = recipes_folder()
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def recipe_path(name: str) -> Path:
    """The file of the recipe `dataset/method`; raises `ConfigError` with the nearest names."""
    if name not in recipe_names():
        raise ConfigError(f"no recipe is called '{name}'{_hint(name)}")
    return recipes_folder() / f"{name}.yaml"


def recipe_about(name: str) -> str:
    """What a recipe says of itself in the comment at its top; empty without one."""
    first = recipe_path(name).read_text(encoding="utf-8").partition("\n")[0]
    return first.lstrip("# ") if first.startswith("#") else ""


def find_config(given: Path | str) -> Path:
    """The YAML file that a path or the name of a recipe stands for.

    A file wins over a recipe of the same name.

    Raises:
        ConfigError: where there is neither, with the nearest recipes.
    """
    path = Path(given)
    if path.is_file():
        return path
    if path.as_posix() in recipe_names():
        return recipe_path(path.as_posix())
    raise ConfigError(f"{given}: no such file, and no recipe of this name{_hint(path.as_posix())}")


def is_config(given: Path | str) -> bool:
    """Whether a word names a recipe or a YAML file, not a trained model."""
    path = Path(given)
    return path.suffix in (".yaml", ".yml") or (not path.exists() and path.as_posix() in recipe_names())


def _hint(name: str) -> str:
    name = name.removeprefix("configs/").removesuffix(".yaml")
    near = nearest_names(name, recipe_names(), count=3)
    return f"; did you mean {' or '.join(near)}?" if near else "; 'slimreid train --list' shows the recipes"
