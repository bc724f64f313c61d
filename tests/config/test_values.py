"""Values of options: every type refuses what it is not, by name, whatever YAML makes of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import pytest
import yaml

from slimreid.cli.app import main
from slimreid.config import Config
from slimreid.config.files import config_text, known_keys, load_config, options_of
from slimreid.config.values import parse_value
from slimreid.errors import ConfigError


def nested(key: str, value: str) -> str:
    """YAML of a dotted key whose last value is written as given."""
    *sections, name = key.split(".")
    return (
        "".join(f"{'  ' * n}{part}:\n" for n, part in enumerate(sections))
        + f"{'  ' * len(sections)}{name}:{value}\n"
    )


@pytest.mark.parametrize("key", known_keys())
def test_an_option_left_empty_is_refused_by_name(key, tmp_path):
    path = tmp_path / "c.yaml"
    for text in (nested(key, ""), f"{key}:\n", nested(key, " # nothing")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"c\.yaml: {key} is left empty"):
            load_config([path])
    with pytest.raises(ConfigError, match=f"{key} is left empty"):
        load_config(overrides=[f"{key}="])


@pytest.mark.parametrize("section", ["data", "model", "train"])
def test_a_section_left_empty_is_refused_by_name(section, tmp_path):
    (tmp_path / "c.yaml").write_text(f"{section}:\n")
    with pytest.raises(ConfigError, match=f"'{section}' is a section with options of its own, not empty"):
        load_config([tmp_path / "c.yaml"])


def test_null_is_allowed_only_where_none_is_a_value(tmp_path):
    path = tmp_path / "c.yaml"
    for option in options_of(Config):
        path.write_text(nested(option.key, " null"))
        if "None" in str(option.type):
            load_config([path])
        else:
            with pytest.raises(ConfigError, match=option.key):
                load_config([path])


def test_all_defaults_survive_a_file(tmp_path):
    (tmp_path / "c.yaml").write_text(config_text(Config()))
    assert load_config([tmp_path / "c.yaml"]) == Config()


HOSTILE = {
    "deep": "train: " + "[" * 1000 + "]" * 1000,
    "deep tables": "".join(f"{' ' * n}a:\n" for n in range(1000)),
    "self reference": "train: &a {epochs: *a}",
    "self reference in a list": "data: {modalities: &a [*a]}",
    "laughs": "a: &a [x,x,x,x,x,x,x,x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)),
    "a date that is none": "seed: 2024-99-99",
    "a date": "seed: 2024-01-01",
    "a tag that lies": "seed: !!int abc",
    "half a number": "seed: 0x_",
    "many digits": "seed: " + "9" * 5000,
    "beyond 64 bits": f"seed: {2**64}",
    "beyond floats": "optim: {lr: " + "9" * 400 + "}",
    "not finite": "optim: {lr: .nan}",
    "infinite": "optim: {lr: .inf}",
    "code": "seed: !!python/object/apply:os.getcwd []",
    "a list as key": "? [a]\n: 3",
    "NUL": "seed: \0",
    "two documents": "seed: 1\n---\nseed: 2",
    "merge of a number": "<<: 3",
    "sexagesimal": "data: {manifest: 1:30}",
    "a set": "data: {modalities: !!set {rgb}}",
    "binary": "data: {manifest: !!binary aGk}",
    "true as number": "train: {epochs: true}",
    "fraction": "train: {epochs: 1.5}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_yaml_is_one_named_error(name, tmp_path, capsys):
    path = tmp_path / "bad.yaml"
    path.write_text(HOSTILE[name])
    started = time.process_time()
    assert main(["train", str(path)]) == 2
    err = capsys.readouterr().err
    assert "bad.yaml: " in err
    assert len(err) < 1000
    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", "a", "--samples", str(10**30)], "--samples: the number does not fit into 64 bits"),
        (["compare", "a", "--samples", "9" * 5000], "--samples: the number does not fit into 64 bits"),
        (["train", "--seed", "9" * 5000], "seed: the number does not fit into 64 bits"),
        (["train", "--optim.lr", "nan"], "optim.lr: nan is not a finite number"),
        (["train", "--data.manifest", "a\0b"], "data.manifest: 'a\\0b' holds a NUL character"),
        (["evaluate", "a\0b"], "MODEL: 'a\\0b' holds a NUL character"),
        (["evaluate", "m", "--batch="], "--batch is left empty"),
        (["evaluate", "m", "--rerank=yes"], "--rerank"),
        (["evaluate", "m", "n"], "too many arguments: n"),
        (["evaluate", "m", "--batch"], "--batch"),
        (["evaluate", "m", "--batch", "0"], "--batch must be at least 1, not 0"),
        (["ablate", "--seeds", "1,1"], "--seeds takes different numbers"),
        (["ablate", "--seeds", "-1"], "--seeds takes different numbers"),
        (["profile", "synthetic/sdtps", "--batch-sizes", "0,1"], "--batch-sizes takes numbers over 0"),
    ],
)
def test_wrong_words_are_one_named_error(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("3", int, 3),
        ("-3", int, -3),
        ("1e-5", float, 1e-5),
        ("2", float, 2.0),
        ("true", bool, True),
        ("no", bool, False),
        ("007", str, "007"),
        ("none", str | None, None),
        ("none", Literal["none", "all"], "none"),
        ("none", Literal["none", "all"] | None, "none"),
        ("a b", Path, Path("a b")),
        ("rgb,tir", tuple[str, ...], ("rgb", "tir")),
        ("[rgb, tir]", tuple[str, ...] | None, ("rgb", "tir")),
        ("null", tuple[str, ...] | None, None),
        ("0.1,1", tuple[float, float], (0.1, 1)),
        ("{tir: [1, 2]}", dict[str, tuple[float, float]], {"tir": (1, 2)}),
        ("[[0.25, 0.5], [0.5, 0.2]]", tuple[tuple[float, float], ...], ((0.25, 0.5), (0.5, 0.2))),
    ],
)
def test_words_become_values(text, kind, value):
    found = parse_value(text, kind, "key")
    assert (found, type(found)) == (value, type(value))


def test_numbers_with_exponents_are_numbers_in_files_too(tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"optim": {"lr": "1e-5"}}))
    assert load_config([tmp_path / "c.yaml"]).optim.lr == 1e-5
