"""Mistakes in options are answered in plain words, whatever the parser makes of them."""

import pytest

from slimreid.cli.parser import parse_words
from slimreid.config.files import load_config
from slimreid.errors import ConfigError
from support.commands import run_command


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.fusion=maen", "model.fusion: 'maen' is not one of none, "),
        ("model.fusion=maen", "did you mean 'mean'?"),
        ("train.epochs=many", "train.epochs: 'many' is not a whole number"),
        ("optim.lr=fast", "optim.lr: 'fast' is not a number"),
        ("batch.spread_cameras=maybe", "batch.spread_cameras: 'maybe' is not true or false"),
        ("data.modalities={a: b}", "data.modalities: '{'a': 'b'}' is not a list such as [a,b]"),
        ("data.modalities=[1]", "data.modalities: '1' is not text"),
        ("data.windows=3", "data.windows: '3' is not a table such as {a: b}"),
        ("model.stride=[1]", "model.stride: '[1]' is not a list of 2"),
        ("train.epohcs=1", "unknown option 'train.epohcs'; did you mean 'train.epochs'?"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_should_be(override, message):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[override])
    assert message in str(caught.value)
    assert "class" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluat", "run"], "unknown command 'evaluat'; did you mean 'evaluate'?"),
        (["xyz"], "unknown command 'xyz'; there are quickstart, train, evaluate, "),
        (["data", "chek", "w"], "unknown command 'chek'; did you mean 'check'?"),
        (["evaluate", "run", "--feature", "slimed"], "feature: 'slimed' is not one of original, slimmed,"),
        (
            ["embed", "w", "--model", "m", "--split", "tests"],
            "split: 'tests' is not one of train, val, query, gallery",
        ),
        (["evaluate", "run", "--batch", "x"], "batch: 'x' is not a whole number"),
        (["report"], "the following arguments are required: MODEL"),
        (["data", "check"], "the following arguments are required: DATA"),
    ],
)
def test_commands_are_answered_alike(words, message, capsys):
    code, _, err = run_command(*words, capsys=capsys)
    assert code == 2
    assert message in " ".join(err.split())
    assert "Parser key" not in err
    assert "class" not in err


@pytest.fixture
def help_of(monkeypatch):
    """The help of a command on one line."""
    monkeypatch.setenv("COLUMNS", "110")
    return lambda *command: " ".join(str(parse_words([*command, "--help"])).split())


def test_help_says_defaults_that_are_something(help_of):
    assert "(default: )" not in help_of("search") + help_of("gallery", "search")
    assert "--seed N The same seed gives the same files, byte for byte (default: 0)." in help_of(
        "data", "synth"
    )


def test_a_model_is_described_alike_and_exceptions_follow(help_of):
    model = "A run, checkpoint, model file or exported model, or the name of a built-in model"
    assert f"{model} (default: people-tiny)." in help_of("embed")
    assert f"{model}. Default: the one the gallery was made with." in help_of("gallery", "identify")
    assert f"MODEL {model}. Or a folder of embeddings" in help_of("evaluate")
    assert f"MODEL {model}. IMAGES" in help_of("adapt")


def test_a_commands_own_options_come_before_those_it_shares(help_of):
    shown = help_of("evaluate")
    assert shown.index("--data PATH") < shown.index("--memory N") < shown.index("--batch N")


def test_arguments_given_several_times_are_named_in_the_singular(help_of):
    assert "gallery merge GALLERY IDENTITY [IDENTITY ...] --into TEXT" in help_of("gallery", "merge")
