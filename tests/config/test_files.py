import json
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
import yaml

from slimreid import config as config_module
from slimreid.config import Config, TransformConfig
from slimreid.config.files import REMOVED, config_from_dict, known_keys, load_config, save_config
from slimreid.errors import ConfigError

CONFIGS = sorted((Path(__file__).parents[2] / "configs").rglob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_shipped_config_loads(path):
    assert load_config([path]) != Config(), "a config that changes nothing is of no use"


def test_there_are_shipped_configs():
    assert CONFIGS


def test_overrides_win_over_files_and_later_files_over_earlier(tmp_path):
    for number in (1, 2):
        text = yaml.safe_dump({"seed": number, "transforms": {"height": 100 * number}})
        (tmp_path / f"{number}.yaml").write_text(text)
    config = load_config([tmp_path / "1.yaml", tmp_path / "2.yaml"], ["transforms.width=64"])
    assert (config.seed, config.transforms.height, config.transforms.width) == (2, 200, 64)


def test_saved_config_reads_back_the_same(tmp_path):
    overrides = [
        "data.modalities=[th,rgb]",
        "data.windows={tir: [100, 200]}",
        "model.stride=[8,8]",
    ]
    config = load_config(overrides=overrides)
    assert config.data.modalities == ("rgb", "tir")
    saved = yaml.safe_load(save_config(config, tmp_path).read_text())
    assert load_config([tmp_path / "config.yaml"]) == config
    flat = {f"{k}.{s}" for k, v in saved.items() if isinstance(v, dict) for s in v}
    assert {key for key in known_keys() if key.count(".") == 1} <= flat, "the whole config is saved"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data: {manifst: x}", "unknown option 'data.manifst'; did you mean 'data.manifest'"),
        ("transforms: {heigth: 3}", "did you mean 'transforms.height'"),
        ("sed: 3", "unknown option 'sed'; did you mean 'seed'"),
        ("transforms: {height: tall}", "transforms.height"),
        ("transforms: {flip: 2}", r"transforms.flip: 2.0 is not in \[0, 1\]"),
        ("transforms: {pad: 200}", "transforms.pad"),
        ("transforms: {std: 0}", "transforms.std"),
        ("transforms: {modality_dropout: 1.0}", "nothing would be left"),
        ("transforms: {train_resize: bilinear}", r"'transforms\.train_resize' was removed; .* 'bicubic'"),
        ("optim: {milestones: [3]}", r"'optim\.milestones' was removed; all is done as with \[\]"),
        ("data: {cache_dir: x}", "data.cache is not 'disk'"),
        ("data: {workers: -1}", "data.workers"),
        ("data: {windows: {tir: [2, 1]}}", "data.windows.tir"),
        ("data: {modalities: [rgb, rgb]}", "named twice"),
        ("batch: {num_ids: 1}", "batch.num_ids must be at least 2"),
        ("seed: -1", "seed must not be negative"),
    ],
)
def test_mistakes_are_named(tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config([tmp_path / "bad.yaml"])


def test_files_may_still_name_removed_options_with_what_is_always_done(tmp_path):
    sections: dict[str, dict[str, object]] = {}
    for key, value in REMOVED.items():
        section, name = key.split(".")
        sections.setdefault(section, {})[name] = value
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(sections))
    assert load_config([tmp_path / "c.yaml"]) == Config()
    assert config_from_dict(json.loads(json.dumps(sections))) == Config()
    assert not REMOVED.keys() & set(known_keys())
    with pytest.raises(ConfigError, match=r"'optim\.schedule' was removed; all is done as with 'cosine'"):
        load_config(overrides=["optim.schedule=multistep"])


def test_missing_file_and_unknown_override_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load_config([tmp_path / "none.yaml"])
    with pytest.raises(ConfigError, match=r"did you mean 'transforms\.width'"):
        load_config(overrides=["transforms.widht=3"])


def test_every_option_has_one_line_of_help():
    source = Path(config_module.__file__).read_text().splitlines()
    for kind in vars(config_module).values():
        if not is_dataclass(kind) or kind.__module__ != config_module.__name__:
            continue
        for item in fields(kind):
            at = next(i for i, line in enumerate(source) if line.startswith(f"    {item.name}: "))
            assert source[at + 1].strip().startswith('"""'), f"{kind.__name__}.{item.name} has no help"


def test_config_is_immutable():
    with pytest.raises(AttributeError):
        TransformConfig().height = 3
