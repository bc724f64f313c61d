"""An old config and checkpoint become a run that gives the features of the earlier implementation."""

import re
import zipfile

import pytest
import torch
import yaml

import slimreid
from slimreid.backbones.weight_conversion import convert_state_dict, infer_config
from slimreid.backbones.weight_files import read_weights
from slimreid.cli.app import main
from slimreid.compat.demo_run import import_demo
from slimreid.config.backbones import SIZES
from slimreid.config.files import load_config
from slimreid.errors import ConfigError, ModelError
from slimreid.training.warm_start import source_card
from support.golden import load_golden

PARITY = 2e-6
"""Largest difference to the features of the earlier implementation that docs/demo.md promises."""


@pytest.fixture(params=["demo_baseline", "demo_sdtps", "demo_moe"])
def old(request, tmp_path, monkeypatch):
    """Golden numbers, and the config and checkpoint they came from as files."""
    golden = load_golden(request.param)
    state = golden["state_dict"]
    tower = {k.removeprefix("BACKBONE.base."): v for k, v in state.items() if k.startswith("BACKBONE.base.")}
    small = infer_config(convert_state_dict(tower).tensors, SIZES["clip_vit_b16"])
    monkeypatch.setitem(SIZES, "clip_vit_b16", small)  # the golden backbone has the names but not the size
    nested: dict = {"INPUT": {"SIZE_TRAIN": list(golden["image_size"])}}
    for key, value in golden["options"].items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = list(value) if isinstance(value, tuple) else value
    (tmp_path / "DeMo.yml").write_text(yaml.safe_dump(nested))
    torch.save({f"module.{k}": v for k, v in state.items()}, tmp_path / "DeMo.pth")
    return golden, tmp_path / "DeMo.yml", tmp_path / "DeMo.pth"


@torch.no_grad()
def test_the_run_has_the_features_of_the_earlier_implementation(old, tmp_path, capsys):
    golden, config, checkpoint = old
    assert main(["import-demo", str(config), str(checkpoint), "--out", str(tmp_path / "run")]) == 0
    assert "next: slimreid evaluate" in capsys.readouterr().out
    loaded = slimreid.load(tmp_path / "run")
    model = loaded.model
    pairs = zip(model.modalities, golden["images_int8"].values(), strict=True)
    images = {name: image.float() * golden["image_scale"] for name, image in pairs}
    features = model(images, golden["cam_label"]).features["both"]
    assert (features - golden["features"][3]).abs().max() <= PARITY * golden["features"][3].abs().max()
    assert len(loaded.identities) == golden["num_classes"]
    assert loaded.cameras == ("1", "2", "3", "4")
    assert loaded.card.select_on == "test"
    assert load_config([tmp_path / "run" / "config.yaml"]) == loaded.config


def test_an_existing_run_is_not_overwritten(old, tmp_path):
    _, config, checkpoint = old
    import_demo(config, checkpoint, tmp_path / "run")
    with pytest.raises(ConfigError, match="holds a model already"):
        import_demo(config, checkpoint, tmp_path / "run")


def test_pairs_override_the_config(old, tmp_path):
    _, config, checkpoint = old
    found = import_demo(config, checkpoint, tmp_path / "run", pairs=["MODEL.SIE_COE", "2.0"])
    assert found.card.config.model.camera_scale == 2.0


def test_a_checkpoint_that_does_not_fit_its_config_leaves_nothing(old, tmp_path):
    golden, config, checkpoint = old
    torch.save({**golden["state_dict"], "surprise": torch.zeros(1)}, checkpoint)
    with pytest.raises(ModelError, match="no place for 'surprise'"):
        import_demo(config, checkpoint, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "command", [["evaluate", "PTH"], ["embed", ".", "--model", "PTH"], ["report", "PTH", "--out", "r.html"]]
)
def test_commands_that_meet_an_old_checkpoint_name_the_command(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save({"BACKBONE.base.proj": torch.zeros(2, 2)}, "DeMo.pth")
    assert main([word.replace("PTH", "DeMo.pth") for word in command]) == 1
    assert "slimreid import-demo CONFIG.yml DeMo.pth --out RUN" in capsys.readouterr().err


def test_training_that_starts_from_an_old_checkpoint_names_the_command(tmp_path):
    torch.save({"BACKBONE.base.proj": torch.zeros(2, 2)}, tmp_path / "DeMo.pth")
    with pytest.raises(ConfigError, match=r"train\.init_from: .*slimreid import-demo"):
        source_card(str(tmp_path / "DeMo.pth"), "train.init_from")


def test_an_old_config_given_as_ours_names_the_commands(tmp_path):
    (tmp_path / "DeMo.yml").write_text("MODEL:\n  HDM: True\n")
    with pytest.raises(ConfigError, match=re.escape("slimreid import-demo")) as error:
        load_config([tmp_path / "DeMo.yml"])
    assert "--demo-config" in str(error.value)


def test_a_dict_that_holds_itself_is_refused(tmp_path):
    inner: dict = {}
    inner["state_dict"] = inner
    torch.save(inner, tmp_path / "loop.pth")
    with pytest.raises(ModelError, match=r"loop\.pth: .*nested in each other"):
        read_weights(tmp_path / "loop.pth")


def test_a_damaged_archive_is_refused(tmp_path):
    path = tmp_path / "cut.pth"
    torch.save({"a": torch.zeros(3)}, path)
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\x01\x02")  # the archive's directory
    content[at : at + 4] = b"XXXX"
    path.write_bytes(content)
    assert zipfile.is_zipfile(path)
    with pytest.raises(ModelError, match=r"cut\.pth: cannot be read as weights"):
        read_weights(path)
