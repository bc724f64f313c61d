"""Help and messages about wrong options need no torch, and come at once."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from slimreid.cli.command_table import COMMANDS, Command
from slimreid.cli.config_arguments import MAIN_OPTIONS
from slimreid.cli.parser import parse_words
from slimreid.config.files import known_keys, options_of

HEAVY = ("torch", "numpy", "matplotlib", "PIL", "rich", "scipy", "sklearn")
CHILD = """
import sys
from slimreid.cli.app import main
code = main(sys.argv[1:])
print([name for name in {heavy} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = CHILD.format(heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["train", "--help-all"], 0),
        (["train", "--list"], 0),
        (["train", "synthetic/slim", "--print-config"], 0),
        (["evaluate", "--help"], 0),
        (["trian"], 2),
        (["train", "--epohcs", "3"], 2),
        (["train", "--train.epochs", "many"], 2),
        (["train", "none.yaml"], 2),
        (["data", "check"], 2),
        (["data", "synth", "w", "--identities", "0"], 2),
        (["compare", "a", "b", "--out", "table.txt"], 2),
        (["ablate", "synthetic/sdtps", "--grid", "train.epohcs=1"], 2),
        (["ablate", "synthetic/sdtps", "--grid", "seed=1"], 2),
        (["train", "synthetic/sdtps", "--out", __file__, "--data.manifest", "w"], 2),
        (["train", "synthetic/sdtps", "--loss.distill_weight", "1"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_no_heavy_library_is_imported(words, code):
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_wrong_key_of_a_file_needs_no_torch_either(tmp_path):
    (tmp_path / "c.yaml").write_text("train: {epohcs: 3}")
    done = run("train", str(tmp_path / "c.yaml"))
    assert "did you mean 'train.epochs'" in done.stderr
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_configuration_needs_no_torch():
    code = "import sys, slimreid.config, slimreid.config.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_looking_into_a_gallery_imports_neither_torch_nor_what_clusters_or_draws():
    heavy = ("torch", "sklearn", "matplotlib", "pyarrow", "pymilvus", "onnxruntime")
    code = (
        f"import sys, slimreid.cli.commands.gallery.looking; print([n for n in {heavy} if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("module", ["slimreid", "slimreid.cli.app"])
def test_the_program_runs_as_a_module(module):
    words = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("slimreid ")


def test_help_takes_at_most_0_4_seconds_of_processor_time():
    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "slimreid", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) <= 0.4


def test_help_of_train_shows_what_matters_and_help_all_the_rest(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    short, whole = parse_words(["train", "--help"]), parse_words(["train", "--help-all"])
    assert len(short.splitlines()) < 60
    assert "RECIPE" in short
    shown = [key for key in known_keys() if f"--{key} " in short]
    assert sorted(shown) == sorted(MAIN_OPTIONS)
    assert len(MAIN_OPTIONS) == 10
    assert all(f"--{key} " in whole for key in known_keys())
    assert all(f"\n{section}:" in whole for section in ("data", "model", "optim", "train"))


def all_commands(entries=COMMANDS):
    """Every command, in groups or not."""
    for entry in entries.values():
        if isinstance(entry, Command):
            yield entry
            continue
        if entry.own is not None:
            yield entry.own
        yield from all_commands(entry.commands)


def test_every_command_has_its_function_and_help_for_every_option():
    for command in all_commands():
        function = command.load()
        (annotation,) = (value for key, value in function.__annotations__.items() if key != "return")
        assert annotation == command.options.__name__
        lacking = [option.key for option in options_of(command.options) if not option.help]
        assert not lacking, f"no help for {lacking} of {command.function}"
