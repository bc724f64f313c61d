"""Dependencies point one way: the table of CONTRIBUTING.md is what the imports of src/slimreid follow."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml

from slimreid.extras import EXTRA_OF

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "slimreid"
TOP = (
    "slimreid",
    "slimreid.__main__",
)  # the entrances of the package; every room may ask them for the version


@dataclass(frozen=True)
class Import:
    """`module` imports `target`, at its top or inside a function, at run time or for types alone."""

    module: str
    target: str
    inside_function: bool = False
    for_types: bool = False

    def __str__(self) -> str:
        return f"{self.module} -> {self.target}"


def module_names(package: Path) -> dict[str, Path]:
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports_of(module: str, source: str, known: Mapping[str, Path]) -> Iterator[Import]:
    """Imports in a source text; of `from a import b`, the target is `a.b` where that is a module, else `a`."""

    def visit(node: ast.AST, inside: bool, types: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(module, alias.name, inside, types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield Import(module, full if full in known else str(node.module), inside, types)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            inside = True
        elif isinstance(node, ast.If):
            types = types or "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, inside, types)

    yield from visit(ast.parse(source), False, False)


def room_of(module: str) -> str:
    """The folder directly in src/slimreid that a module is in; single modules there are the room `base`."""
    if module in TOP:
        return "top"
    name = module.split(".")[1]
    return name if (PACKAGE / name).is_dir() else "base"


def find_cycle(imports: list[Import]) -> list[str] | None:
    graph: dict[str, set[str]] = {}
    for each in imports:
        if each.target.startswith("slimreid.") and not each.for_types:
            graph.setdefault(each.module, set()).add(each.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return None


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    known = module_names(PACKAGE)
    return sorted(
        {
            each
            for module, path in known.items()
            for each in imports_of(module, path.read_text(encoding="utf-8"), known)
        },
        key=str,
    )


@pytest.fixture(scope="module")
def table() -> dict[str, set[str]]:
    """Which rooms each room may import, as CONTRIBUTING.md shows it."""
    text = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| room |")[2].partition("\n\n")[0]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:]]
    return {cells[0].strip("`"): set(re.findall(r"`(\w+)`", cells[2])) for cells in rows}


@pytest.fixture(scope="module")
def exceptions() -> dict[str, str]:
    """Imports that may be inside functions, and why."""
    return yaml.safe_load((Path(__file__).parent / "imports.yaml").read_text(encoding="utf-8"))


def test_the_table_names_every_room_in_order(table):
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert set(table) == folders | {"base"}
    earlier: set[str] = set()
    for room, may_import in table.items():
        assert may_import <= earlier, f"{room}: {may_import - earlier} is not above it"
        earlier.add(room)


def test_imports_follow_the_table(imports, table):
    """Every import is allowed, and what is allowed is used."""
    used: dict[str, set[str]] = {room: set() for room in table}
    for each in imports:
        room = room_of(each.module)
        if each.target.startswith("slimreid.") and room != "top":
            other = room_of(each.target)
            assert other in (room, *table[room]), each
            used[room] |= {other} - {room}
    assert used == table


def test_imports_are_at_the_top(imports, exceptions):
    assert {str(each) for each in imports if each.inside_function} == set(exceptions)


def test_no_module_imports_itself_through_others(imports):
    assert find_cycle(imports) is None


LIGHT = (
    "slimreid.config",
    "slimreid.data.manifest",
    "slimreid.data.check",
    "slimreid.data.importing.datasets",
    "slimreid.inference.load",
    "slimreid.inference.exported_model",
    "slimreid.inference.features.embed_data",
    "slimreid.inference.embedding_sets.files",
    "slimreid.inference.search",
    "slimreid.cli.app",
    "slimreid.cli.parser",
    "slimreid.cli.commands.data.tables",
    "slimreid.cli.commands.embed",
    "slimreid.cli.commands.search",
)
"""What `pip install slimreid` without extras must be able to do."""


def reached_from(front: set[str], imports: list[Import]) -> set[str]:
    """All modules that are imported together with some, not counting imports inside functions."""
    targets: dict[str, set[str]] = {}
    for each in imports:
        if not each.inside_function and not each.for_types:
            parts = each.target.split(".")  # a module is imported together with the packages it is in
            above = {".".join(parts[:n]) for n in range(1, len(parts) + 1)}
            targets.setdefault(each.module, set()).update(above)
    reached: set[str] = set()
    while front:
        reached |= front
        front = set().union(*(targets.get(module, set()) for module in front)) - reached
    return reached


def test_configuration_needs_no_torch(imports):
    modules = {each.module for each in imports if room_of(each.module) == "config"}
    assert "torch" not in reached_from(modules, imports)


@pytest.mark.parametrize("module", LIGHT)
def test_the_light_core_needs_no_extra(imports, module):
    known = {each.module for each in imports}
    assert module in known
    needed = {name: EXTRA_OF[name] for name in reached_from({module}, imports) if name in EXTRA_OF}
    assert not needed


def test_every_library_is_installed_by_the_core_or_an_extra(imports):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {_plain_name(line) for line in project["dependencies"]}
    extras = {
        extra: {_plain_name(line) for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    names = {"PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn", "faiss": "faiss-cpu"}
    names |= {"markupsafe": "jinja2"}  # comes with it
    names |= dict.fromkeys(("anyio", "pydantic", "starlette"), "fastapi")  # come with it
    outside = {each.target.split(".")[0] for each in imports} - sys.stdlib_module_names - {"slimreid"}
    for module in outside | set(EXTRA_OF):
        package = names.get(module, module.replace("_", "-"))
        place = extras[EXTRA_OF[module]] if module in EXTRA_OF else core
        assert package in place or package.replace("-", "_") in place, f"nothing installs {module}"


def _plain_name(requirement: str) -> str:
    return re.split(r"[\[<>=~!]", requirement)[0].strip().lower()


def test_what_the_finder_sees():
    source = (
        "import os\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from slimreid.data import manifest\n"
        "def f():\n    from slimreid.data import Manifest\n"
    )
    found = set(imports_of("slimreid.x", source, {"slimreid.data.manifest": Path()}))
    assert found == {
        Import("slimreid.x", "os"),
        Import("slimreid.x", "typing"),
        Import("slimreid.x", "slimreid.data.manifest", for_types=True),
        Import("slimreid.x", "slimreid.data", inside_function=True),
    }
    ring = [
        Import("slimreid.a", "slimreid.b"),
        Import("slimreid.b", "slimreid.c"),
        Import("slimreid.c", "slimreid.a", inside_function=True),
    ]
    assert set(find_cycle(ring) or ()) == {"slimreid.a", "slimreid.b", "slimreid.c"}
    assert find_cycle(ring[:2]) is None
