"""Tests lie where their source lies: `tests/` has the folders of `src/slimreid`."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "slimreid"
APART = {"benchmarks", "golden", "reference", "research", "suite", "support"}


def misplaced(tests: Path, package: Path) -> list[str]:
    """Files of tests whose folder the package lacks, or that are named after a folder they do not lie in."""
    found = []
    for path in sorted(tests.rglob("*.py")):
        folder = path.parent.relative_to(tests)
        if folder.parts[:1] and folder.parts[0] in APART:
            continue
        named = package / folder / path.stem.removeprefix("test_")
        if not (package / folder).is_dir() or named.is_dir():
            found.append(path.relative_to(tests).as_posix())
    return found


def test_tests_mirror_the_package() -> None:
    assert not misplaced(ROOT / "tests", PACKAGE)


def test_what_is_misplaced(tmp_path: Path) -> None:
    package, tests = tmp_path / "package", tmp_path / "tests"
    (package / "data" / "check").mkdir(parents=True)
    for name in ("data/check", "bulk", "suite"):
        (tests / name).mkdir(parents=True)
    good = (
        "conftest.py",
        "test_files.py",
        "data/test_sampler.py",
        "data/check/test_check.py",
        "suite/test_x.py",
    )
    for name in (*good, "data/test_check.py", "test_data.py", "bulk/test_pool.py"):
        (tests / name).touch()
    assert misplaced(tests, package) == ["bulk/test_pool.py", "data/test_check.py", "test_data.py"]
