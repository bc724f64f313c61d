import re
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from slimreid.compat.demo import convert_demo_state, load_demo_checkpoint
from slimreid.compat.demo_keys import OLD_KEYS, check_value
from slimreid.compat.demo_options import flatten, read_demo_options
from slimreid.config.files import known_keys
from slimreid.config.token_reduction import DEMO_SDTPS
from slimreid.errors import ConfigError, ModelError, SlimReIDWarning
from support.golden import load_golden

GOLDEN = ("demo_baseline", "demo_sdtps", "demo_moe")


def load(golden, state=None, **options):
    given = {**golden["options"], "INPUT.SIZE_TRAIN": golden["image_size"]}
    arguments = {"num_classes": golden["num_classes"], "num_cameras": golden["num_cameras"]} | options
    return load_demo_checkpoint(golden["state_dict"] if state is None else state, given, **arguments)


def inputs(golden, model):
    pairs = zip(model.modalities, golden["images_int8"].values(), strict=True)
    return {name: image.float() * golden["image_scale"] for name, image in pairs}


@pytest.fixture(params=GOLDEN)
def golden(request):
    return load_golden(request.param)


@torch.no_grad()
def test_features_of_the_earlier_implementation(golden):
    model = load(golden)
    out = model(inputs(golden, model), golden["cam_label"], with_reduced=True)
    for number, name in ((1, "original"), (2, model.second or "both"), (3, "both")):
        assert_close(out.features[name], golden["features"][number], atol=1e-5, rtol=0)
    if out.reduced is not None:
        for m in range(len(model.modalities)):
            assert_close(out.reduced.tokens[:, m], golden["sdtps_tokens"][m], atol=1e-5, rtol=0)
            mask = golden["sdtps_masks"][m].to(out.reduced.selection.decision.dtype)
            assert torch.equal(out.reduced.selection.decision[:, m], mask)


@torch.no_grad()
def test_missing_modalities_as_the_earlier_implementation_simulated_them(golden):
    model = load(golden)
    x = inputs(golden, model)
    for letters, expected in golden["features_missing"].items():
        present = torch.tensor([[name[0] not in letters for name in model.modalities]])
        out = model(x, golden["cam_label"], present.expand(len(expected), -1))
        assert_close(out.features["both"], expected, atol=1e-5, rtol=0)


def test_from_a_file_with_prefixes(golden, tmp_path):
    torch.save({f"module.{k}": v for k, v in golden["state_dict"].items()}, tmp_path / "old.pth")
    model = load(golden, tmp_path / "old.pth")
    x = inputs(golden, model)
    assert_close(
        model(x, golden["cam_label"]).features["both"], load(golden)(x, golden["cam_label"]).features["both"]
    )


def test_other_numbers_of_classes_and_cameras_do_not_fit(golden):
    with pytest.raises(ModelError, match=r"'heads\.original\.classifier\.weight' is \(17, .*\), not \(9,"):
        load(golden, num_classes=9)
    with pytest.raises(ModelError, match=r"camera_embedding.* \(4, .*\(6, "):
        load(golden, num_cameras=6)


def test_every_key_must_find_its_place(golden):
    state = golden["state_dict"]
    with pytest.raises(ModelError, match="no place for 'surprise'"):
        load(golden, {**state, "surprise": torch.zeros(1)})
    with pytest.raises(ModelError, match=r"missing 'heads\.original\.classifier\.weight'"):
        load(golden, {k: v for k, v in state.items() if k != "classifier.weight"})
    with pytest.raises(ModelError, match="not a DeMo checkpoint"):
        load(golden, {"a": torch.zeros(1)})
    broken = {**state, "bottleneck.weight": torch.zeros(3)}
    with pytest.raises(ModelError, match=r"'heads\.original\.neck\.weight' is \(3,\)"):
        load(golden, broken)


def test_options_that_contradict_the_checkpoint(golden):
    wrong = {**golden["options"], "MODEL.USE_SDTPS": not golden["options"].get("MODEL.USE_SDTPS", False)}
    with pytest.raises(ModelError, match="does not fit the options"):
        load_demo_checkpoint(golden["state_dict"], wrong, golden["num_classes"], golden["num_cameras"])


def test_split_heads(golden):
    """An old checkpoint with split heads, made from the golden one."""
    state = {
        k: v for k, v in golden["state_dict"].items() if not k.startswith(("classifier.", "bottleneck."))
    }
    C = golden["state_dict"]["BACKBONE.base.proj"].shape[1]
    for letter in "rnt":
        state[f"classifier_{letter}.weight"] = torch.randn(17, C)
        for name in ("weight", "bias", "running_mean"):
            state[f"bottleneck_{letter}.{name}"] = torch.randn(C)
        state[f"bottleneck_{letter}.running_var"] = torch.rand(C)
        state[f"bottleneck_{letter}.num_batches_tracked"] = torch.tensor(3)
    options = {**golden["options"], "MODEL.DIRECT": 0}
    model = load_demo_checkpoint(state, options, 17, 4)
    assert_close(model.heads["original_nir"].classifier.weight.data, state["classifier_n.weight"])
    assert_close(model.heads["original_tir"].neck.running_mean, state["bottleneck_t.running_mean"])
    with torch.no_grad():
        out = model(inputs(golden, model), golden["cam_label"])
    assert_close(out.features["both"], golden["features"][3], atol=1e-5, rtol=0)


def imagenet_checkpoint(width=32, depth=2, cameras=3, grid=8, classes=5):
    """An old checkpoint of the ImageNet host, made up."""
    torch.manual_seed(0)
    base = {
        "cls_token": (1, 1, width),
        "pos_embed": (1, grid + 1, width),
        "sie_embed": (cameras, 1, width),
        "patch_embed.proj.weight": (width, 3, 16, 16),
        "patch_embed.proj.bias": (width,),
        "norm.weight": (width,),
        "norm.bias": (width,),
    }
    for i in range(depth):
        block = {
            "norm1": (width,), "attn.qkv": (3 * width, width), "attn.proj": (width, width),
            "norm2": (width,), "mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width),
        }  # fmt: skip
        for name, shape in block.items():
            base[f"blocks.{i}.{name}.weight"] = shape
            base[f"blocks.{i}.{name}.bias"] = shape[:1]
    state = {f"BACKBONE.base.{name}": torch.randn(shape) * 0.1 for name, shape in base.items()}
    state |= {"classifier.weight": torch.randn(classes, 3 * width)}
    for name in ("weight", "bias", "running_mean"):
        state[f"bottleneck.{name}"] = torch.randn(3 * width)
    state |= {
        "bottleneck.running_var": torch.rand(3 * width),
        "bottleneck.num_batches_tracked": torch.tensor(1),
    }
    return state


def test_imagenet_host():
    options = {
        "MODEL.TRANSFORMER_TYPE": "vit_base_patch16_224",
        "INPUT.SIZE_TRAIN": [64, 32],
        "MODEL.SIE_COE": 1.5,
    }
    state = imagenet_checkpoint()
    model = load_demo_checkpoint(state, options, 5, 3)
    config = model.backbone.config
    assert (config.width, config.depth, config.projection, config.drop_path) == (32, 2, None, 0.1)
    assert (config.camera_style, config.camera_scale, config.norm_eps) == ("all", 1.5, 1e-6)
    assert_close(model.backbone.camera_embedding.data, state["BACKBONE.base.sie_embed"])
    x = {name: torch.randn(2, 3, 64, 32) for name in model.modalities}
    assert model(x, torch.tensor([0, 2])).features["both"].shape == (2, 96)


def test_wrong_image_size_is_told():
    options = {"MODEL.TRANSFORMER_TYPE": "vit_base_patch16_224", "INPUT.SIZE_TRAIN": [64, 64]}
    with pytest.raises(ModelError, match="position"):
        load_demo_checkpoint(imagenet_checkpoint(), options, 5, 3)


def test_every_value_of_the_table_exists_here():
    keys = set(known_keys())
    for old, known in OLD_KEYS.items():
        assert known.ours is None or known.ours in keys, old
    values = read_demo_options({"MODEL.USE_SDTPS": True}).values
    assert {k for k in values if k != "model.after_backbone"} <= keys


def test_defaults_are_the_old_ones():
    values = read_demo_options({}).values
    assert values["model.camera_scale"] == 3.0
    assert values["batch.num_instances"] == 16
    assert values["batch.num_ids"] == 8
    assert values["optim.lr"] == 0.009
    assert values["optim.name"] == "sgd"
    assert values["model.fusion"] == "none"
    assert values["model.missing"] == "zeros"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"MODEL.HDM": True}, {"model.reduction": "none", "model.fusion": "hdm"}),
        (
            {"MODEL.HDM": True, "MODEL.ATM": True, "MODEL.HEAD": 4},
            {"model.fusion": "hdm_atmoe", "model.moe_heads": 4},
        ),
        (
            {"MODEL.HDM": True, "MODEL.USE_SDTPS": True, "MODEL.SDTPS_LOSS_WEIGHT": 2.0},
            {"model.reduction": "after_backbone", "model.fusion": "mean", "model.fusion_weight": 2.0},
        ),
        ({"MODEL.DIRECT": 0}, {"model.heads": "split"}),
        ({"MODEL.STRIDE_SIZE": [12, 12]}, {"model.stride": (12, 12)}),
        ({"INPUT.SIZE_TRAIN": [128, 256]}, {"transforms.height": 128, "transforms.width": 256}),
        (
            {"SOLVER.IMS_PER_BATCH": 64, "DATALOADER.NUM_INSTANCE": 4},
            {"batch.num_ids": 16, "batch.num_instances": 4},
        ),
        (
            {"MODEL.TRANSFORMER_TYPE": "vit_base_patch16_224", "SOLVER.BASE_LR": 0.01},
            {"optim.backbone_lr": 0.008},
        ),
        (
            {"MODEL.NO_MARGIN": False, "SOLVER.MARGIN": 0.5},
            {"loss.metric": "triplet_margin", "loss.margin": 0.5},
        ),
        ({"MODEL.IF_LABELSMOOTH": "off"}, {"loss.label_smoothing": 0.0}),
        ({"SOLVER.OPTIMIZER_NAME": "Adam", "SOLVER.SEED": 3}, {"optim.name": "adam", "seed": 3}),
    ],
)
def test_meanings(options, expected):
    values = read_demo_options(options).values
    assert {key: values[key] for key in expected} == expected


def test_options_of_sdtps():
    given = {
        "MODEL.USE_SDTPS": True, "MODEL.SDTPS_SPARSE_RATIO": 0.7, "MODEL.SDTPS_AGGR_RATIO": 0.5,
        "MODEL.SDTPS_BETA": 0.1, "MODEL.SDTPS_USE_GUMBEL": True, "MODEL.SDTPS_GUMBEL_TAU": 5.0,
    }  # fmt: skip
    expected = replace(DEMO_SDTPS, keep_ratio=0.7, merge_ratio=0.5, beta=0.1, estimator="gumbel", tau=5.0)
    assert read_demo_options(given).values["model.after_backbone"] == expected
    without = {**given, "MODEL.SDTPS_USE_GUMBEL": False}  # its temperature is not read then
    assert read_demo_options(without).values["model.after_backbone"] == replace(
        expected, estimator="topk", tau=1.0
    )


def test_nested_sections_dead_and_unknown_keys():
    nested = {
        "MODEL": {"HDM": True, "HDN": True, "DIST_TRAIN": True},
        "TEST": {"RE_RANKING": "no"},
        "OUTPUT_DIR": "x",
    }
    assert flatten(nested)["MODEL.HDM"] is True
    read = read_demo_options(nested)
    assert read.values["model.fusion"] == "hdm"
    assert [note.split(":")[0] for note in read.dead] == ["MODEL.DIST_TRAIN", "TEST.RE_RANKING", "OUTPUT_DIR"]
    assert read.unknown == ("MODEL.HDN (did you mean MODEL.HDM?)",)
    assert len(read.notes()) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"MODEL.PROMPT": True}, "MODEL.PROMPT is True"),
        ({"MODEL.ADAPTER": True}, "MODEL.ADAPTER"),
        ({"MODEL.FROZEN": True}, "optim.freeze_backbone"),
        ({"MODEL.ATM": True}, "MODEL.ATM needs MODEL.HDM"),
        ({"MODEL.TRANSFORMER_TYPE": "resnet"}, "resnet"),
        ({"SOLVER.IMS_PER_BATCH": 100}, "100"),
        ({"DATALOADER.SAMPLER": "softmax"}, "softmax_triplet"),
        ({"INPUT.PIXEL_MEAN": [0.1, 0.2, 0.3]}, "INPUT.PIXEL_MEAN"),
        ({"INPUT.SIZE_TEST": [99, 99]}, "INPUT.SIZE_TEST"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        read_demo_options(options)


def test_refused_keys_may_be_off():
    assert read_demo_options({"MODEL.PROMPT": False}).values["model.fusion"] == "none"


def test_unknown_state_keys_are_listed():
    converted, strangers = convert_demo_state({"rgb_reduce.0.weight": torch.zeros(2), "odd": torch.zeros(1)})
    assert list(converted) == ["global_local.rgb.norm.weight"]
    assert strangers == ["odd"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("MODEL.STRIDE_SIZE", 16),
        ("MODEL.STRIDE_SIZE", [16, "a"]),
        ("INPUT.SIZE_TRAIN", 256),
        ("INPUT.SIZE_TRAIN", [256]),
        ("DATALOADER.NUM_INSTANCE", 0),
        ("DATALOADER.NUM_INSTANCE", None),
        ("SOLVER.IMS_PER_BATCH", "abc"),
        ("SOLVER.IMS_PER_BATCH", 0),
        ("SOLVER.BASE_LR", "abc"),
        ("SOLVER.BASE_LR", float("nan")),
        ("SOLVER.SEED", True),
        ("INPUT.PIXEL_STD", ["a", "b"]),
        ("INPUT.PIXEL_STD", [0.5, 0.5]),
        ("MODEL.TRANSFORMER_TYPE", [1]),
        ("MODEL.SDTPS_SPARSE_RATIO", "abc"),
        ("MODEL.HDM", "yes please"),
        ("MODEL.DIRECT", 2),
        ("MODEL.PRETRAIN_PATH_T", 3),
        ("MODEL.IF_LABELSMOOTH", "of"),
        ("MODEL.IF_LABELSMOOTH", 1),
    ],
)
def test_values_of_a_wrong_kind_are_refused_by_key(key, value):
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        read_demo_options({"MODEL.TRANSFORMER_TYPE": "vit_base_patch16_224", key: value})


@pytest.mark.parametrize(
    ("key", "value", "ours", "expected"),
    [
        ("INPUT.PIXEL_MEAN", 0.4, "transforms.mean", 0.4),
        ("INPUT.PIXEL_STD", (0.2, 0.2, 0.2), "transforms.std", 0.2),
        ("SOLVER.BASE_LR", "1e-4", "optim.lr", 1e-4),
        ("SOLVER.MARGIN", 1, "loss.margin", 1),
        ("MODEL.HDM", 1, "model.fusion", "hdm"),
        ("MODEL.DIRECT", False, "model.heads", "split"),
        ("MODEL.IF_LABELSMOOTH", True, "loss.label_smoothing", 0.1),
        ("MODEL.IF_LABELSMOOTH", False, "loss.label_smoothing", 0.0),
        ("MODEL.PRETRAIN_PATH_T", "w.pt", "model.pretrained", "w.pt"),
    ],
)
def test_values_that_can_be_read_otherwise(key, value, ours, expected):
    assert read_demo_options({key: value}).values[ours] == expected


def test_every_default_is_of_its_own_kind():
    for key, known in OLD_KEYS.items():
        if not known.dead:
            assert check_value(key, known.default) == known.default


def test_unknown_options_of_a_checkpoint_are_warned_of_and_dead_ones_logged(caplog):
    options = {
        "MODEL.TRANSFORMER_TYPE": "vit_base_patch16_224",
        "INPUT.SIZE_TRAIN": [64, 32],
        "MODEL.HDN": True,
        "MODEL.DIST_TRAIN": True,
    }
    with (
        caplog.at_level("INFO", "slimreid"),
        pytest.warns(SlimReIDWarning, match=r"MODEL\.HDN \(did you mean MODEL\.HDM\?\)") as caught,
    ):
        load_demo_checkpoint(imagenet_checkpoint(), options, 5, 3)
    assert len(caught) == 1
    assert any("MODEL.DIST_TRAIN" in record.getMessage() for record in caplog.records)


def test_missing_tokens_and_experts_are_listed():
    golden = load_golden("demo_moe")
    experts = [key for key in golden["state_dict"] if ".expertHead." in key]
    tokens = [key for key in golden["state_dict"] if key.endswith("_token")]
    assert experts
    assert len(tokens) == 7
    for lost in (experts[0], experts[-1], tokens[2]):
        state = {key: value for key, value in golden["state_dict"].items() if key != lost}
        with pytest.raises(ModelError, match=re.escape(f"missing '{lost}'")):
            load(golden, state)
    stranger = {**golden["state_dict"], "generalFusion.odd_token": torch.zeros(1)}
    with pytest.raises(ModelError, match=r"no place for 'generalFusion\.odd_token'"):
        load(golden, stranger)
