"""The shipped configs say what the recipes say, and build."""

from __future__ import annotations

import functools
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from slimreid.config import Config, LossConfig, OptimConfig
from slimreid.config.files import load_config
from slimreid.config.token_reduction import DEMO_SDTPS
from slimreid.data.augment.transforms import ERASE_AREA, ERASE_ASPECT, TrainTransform
from slimreid.modalities import DEFAULT_MODALITIES
from slimreid.models.reid_model import build_model
from slimreid.training.losses import ReIDLoss
from slimreid.training.optimizer import lr_at, make_optimizer

CONFIGS = Path(__file__).parents[2] / "configs"
SHIPPED = sorted(str(path.relative_to(CONFIGS).with_suffix("")) for path in CONFIGS.rglob("*.yaml"))
# method: reduction, fusion
METHODS = {
    "baseline": ("none", "none"),
    "demo": ("none", "hdm_atmoe"),
    "sdtps": ("after_backbone", "mean"),
    "demo_sdtps": ("after_backbone", "mean"),
    "slim": ("in_backbone", "mean"),
    "slim_once": ("in_backbone", "mean"),
    "slim_demo": ("in_backbone", "hdm_atmoe"),
}

# dataset: heads, heads of the experts, K, batch, epochs, warm-up, (height, width)
HOST = {
    "rgbnt201": ("direct", 4, 8, 64, 50, 10, (256, 128)),
    "rgbnt100": ("split", 8, 16, 128, 30, 5, (128, 256)),
    "msvr310": ("split", 8, 4, 64, 50, 10, (128, 256)),
    "wmveid863": ("split", 8, 4, 64, 50, 10, (128, 256)),
}
HOST_RECIPES = [f"{dataset}/{method}" for dataset in HOST for method in METHODS if "slim" not in method]
MARKET_RECIPES = [f"{d}/{m}" for d in ("market1501", "market1501_sim") for m in ("baseline", "sdtps")]
SLIM_RECIPES = [f"{dataset}/slim" for dataset in (*HOST, "market1501", "market1501_sim", "synthetic")]
SLIM_DEMO_RECIPES = [f"{dataset}/slim_demo" for dataset in (*HOST, "market1501_sim", "synthetic")]
ONCE_RECIPES = ["market1501/slim_once"]
SYNTHETIC_RECIPES = [f"synthetic/{method}" for method in ("baseline", "demo", "sdtps")]
PEOPLE_RECIPES = ["people/full", "people/looks", "people/slim"]
"""The stages of the built-in model; they share nothing with the recipes of a dataset."""
OF_DATASETS = [name for name in SHIPPED if name not in PEOPLE_RECIPES]
SECOND = ("reduction", "after_backbone", "in_backbone", "fusion", "moe_heads")
"""Options of the model in which the recipes of a dataset may differ."""


@functools.cache
def recipe(name: str) -> Config:
    return load_config([CONFIGS / f"{name}.yaml"])


def test_exactly_the_promised_recipes_are_shipped():
    promised = HOST_RECIPES + MARKET_RECIPES + SYNTHETIC_RECIPES + SLIM_RECIPES + SLIM_DEMO_RECIPES
    assert sorted(promised + ONCE_RECIPES) == OF_DATASETS
    assert sorted({*OF_DATASETS, *PEOPLE_RECIPES}) == SHIPPED


@pytest.mark.parametrize("name", OF_DATASETS)
def test_every_recipe_names_its_method_and_its_manifest(name):
    dataset, method = name.split("/")
    config = recipe(name)
    reduction, fusion = METHODS[method]
    if method == "baseline" and dataset.startswith("market1501"):
        fusion = "mean"
    assert (config.model.reduction, config.model.fusion) == (reduction, fusion)
    folder = "w" if dataset == "synthetic" else f"data/{dataset}"
    assert config.data.manifest == f"{folder}/manifest.csv"
    assert config.train.select_on == "val", "nothing is chosen on the test set"


def patch_passes(schedule):
    """Patches that go through the blocks, as a share of all patches through all blocks."""
    positions, shares = zip(*schedule, strict=True)
    edges = (0, *positions, 1)
    return sum(s * (b - a) for s, (a, b) in zip((1, *shares), pairwise(edges), strict=True))


@pytest.mark.parametrize("name", SHIPPED)
def test_recipes_score_patches_by_what_finds_the_object(name):
    """By contrast everywhere; the cosine, which keeps the background, only in the earlier method's recipe."""
    model, method = recipe(name).model, name.split("/")[1]
    if method == "demo_sdtps":
        assert model.after_backbone == DEMO_SDTPS
        assert model.after_backbone.score_terms == ("learned", "self", "cross")
    else:
        assert model.after_backbone.score_terms == ("learned", "contrast", "cross_contrast")
    assert model.in_backbone.score_terms == ("contrast", "cross_contrast", "attention")
    assert model.in_backbone.dropped == "merge"
    assert model.in_backbone.redundancy == (0.75 if name in ONCE_RECIPES else 1.5)


@pytest.mark.parametrize("name", HOST_RECIPES)
def test_numbers_of_the_host(name):
    dataset, method = name.split("/")
    heads, moe_heads, K, batch, epochs, warmup, size = HOST[dataset]
    config = recipe(name)
    model, optim, transforms = config.model, config.optim, config.transforms
    assert (model.backbone, model.heads) == ("clip_vit_b16", heads)
    assert (model.global_local, model.camera_embedding, model.camera_scale) == (True, True, 1.0)
    assert model.fusion_weight == 1.0
    if method == "demo":
        assert model.moe_heads == moe_heads
    if method in ("sdtps", "demo_sdtps"):
        options = model.after_backbone
        assert (options.keep_ratio, options.merge_ratio, options.beta) == (0.5, 0.4, 0.25)
        assert options.estimator == "topk"
    assert (config.batch.num_instances, config.batch.num_ids * config.batch.num_instances) == (K, batch)
    assert (config.train.epochs, optim.warmup_epochs) == (epochs, warmup)
    assert config.train.precision == "fp16"
    assert transforms.size == size
    assert (transforms.flip, transforms.pad, transforms.erase) == (0.5, 10, 0.5)
    assert (transforms.mean, transforms.std) == (0.5, 0.5)
    assert (TrainTransform.mode, transforms.test_resize) == ("bicubic", "bilinear")
    assert (ERASE_AREA, ERASE_ASPECT) == ((0.02, 1 / 3), (0.3, 3.3))
    assert config.loss == LossConfig(
        identity_weight=0.25, label_smoothing=0.1, metric="triplet", metric_weight=1.0
    )
    assert optim == OptimConfig(
        name="adam",
        lr=3.5e-4,
        backbone_lr=5e-6,
        bias_lr_factor=2.0,
        weight_decay=1e-4,
        warmup_epochs=warmup,
    )
    for group in (3.5e-4, 7e-4, 5e-6):
        assert lr_at(group, 0, epochs, optim) == pytest.approx(3.5e-5)
        assert lr_at(group, warmup, epochs, optim) == pytest.approx(group)
        assert lr_at(group, epochs, epochs, optim) == pytest.approx(3.5e-7)


@pytest.mark.parametrize("name", MARKET_RECIPES)
def test_numbers_of_the_market_pilot(name):
    config = recipe(name)
    assert config.data.modalities == (("rgb",) if name.startswith("market1501/") else None)
    assert config.transforms.size == (192, 96)
    assert (config.batch.num_ids, config.batch.num_instances, config.train.epochs) == (12, 4, 8)
    assert config.model.backbone == "vit_tiny"
    optim = config.optim
    assert (optim.name, optim.lr, optim.backbone_lr) == ("adamw", 1e-3, 1e-4)
    assert config.loss.metric == "triplet"
    assert config.loss.identity_weight > 0


@pytest.mark.parametrize("name", SYNTHETIC_RECIPES)
def test_synthetic_recipes_train_the_nano_model_from_scratch_on_a_cpu(name):
    config = recipe(name)
    assert (config.model.backbone, config.model.pretrained) == ("nano", None)
    assert config.optim.backbone_lr is None
    assert config.train.precision == "fp32"
    assert config.transforms.size == (128, 64)
    assert (config.batch.num_ids, config.batch.num_instances) == (8, 4)


def test_the_stages_of_people_tiny_differ_in_token_reduction_and_in_how_hard_images_are():
    full, looks, slim = (recipe(name) for name in PEOPLE_RECIPES)
    assert (full.model.reduction, slim.model.reduction) == ("none", "in_backbone")
    assert replace(slim.model, reduction="none", in_backbone=full.model.in_backbone) == full.model
    assert replace(looks.model, second_scale=1.0) == slim.model, "their weights have an average"
    assert full.transforms == slim.transforms
    harder = looks.transforms.degrade
    assert replace(looks.transforms, erase=slim.transforms.erase, degrade=slim.transforms.degrade) == (
        slim.transforms
    )
    for name, before in vars(slim.transforms.degrade).items():
        assert getattr(harder, name) >= before
    for other in (slim, looks):
        assert (full.batch, full.data) == (other.batch, other.data)
        assert other.train.select_on == full.train.select_on == "last", "nothing is chosen on the test set"


@pytest.mark.parametrize("name", OF_DATASETS)
def test_recipes_of_a_dataset_differ_in_the_second_branch_only(name):
    other, mine = recipe(f"{name.split('/')[0]}/baseline"), recipe(name)
    if name in ONCE_RECIPES:  # the first epochs with all tokens, the others with fewer than in test
        assert 0 < mine.train.full_epochs < mine.train.epochs
        full, passes = mine.train.full_epochs, patch_passes(mine.model.in_backbone.train_schedule)
        assert full + (mine.train.epochs - full) * passes <= 0.8 * other.train.epochs, (
            "cheaper than all tokens"
        )
        mine = replace(mine, train=replace(mine.train, full_epochs=0, epochs=other.train.epochs))
    second = {name: getattr(other.model, name) for name in SECOND}
    mine = replace(mine, model=replace(mine.model, **second))
    if name in SLIM_RECIPES + SLIM_DEMO_RECIPES:  # begins from the other one, so it needs less time
        assert mine.train.epochs < other.train.epochs
        mine = replace(
            mine,
            loss=replace(mine.loss, distill_weight=0.0),
            optim=replace(mine.optim, warmup_epochs=other.optim.warmup_epochs),
            train=replace(mine.train, epochs=other.train.epochs),
        )
    assert mine == other


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_builds_its_model_and_optimizer(name):
    config = recipe(name)
    modalities = config.data.modalities or DEFAULT_MODALITIES
    with torch.device("meta"):  # sizes only, no weights
        model = build_model(config.model, config.transforms.size, modalities, 20, 4)
    assert set(model.branch_weights) == {"original", *([model.second] if model.second else [])}
    heads, second, M = config.model.heads, bool(model.second), len(modalities)
    counts = {"direct": 1 + second, "split": M + second, "split_all": M * (1 + second)}
    assert len(model.head_names) == counts[heads]
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    groups = make_optimizer(model, config.optim).param_groups
    assert sum(p.numel() for group in groups for p in group["params"]) == trainable
    ReIDLoss(config.loss, model.branch_weights)


@pytest.mark.parametrize("name", ONCE_RECIPES)
def test_the_recipe_of_one_run_gives_the_model_of_two_by_another_schedule(name):
    dataset, _ = name.split("/")
    config = recipe(name)
    slim = recipe(f"{dataset}/slim").model
    assert replace(config.model, in_backbone=slim.in_backbone) == slim
    test, training = config.model.in_backbone.schedule, config.model.in_backbone.train_schedule
    assert all(b < a for (_, a), (_, b) in zip(test, training, strict=True)), "training is the cheaper one"
    assert (config.train.init_from, config.train.teacher) == (None, None), "no other run is needed"


@pytest.mark.parametrize("name", SLIM_DEMO_RECIPES)
def test_slim_demo_is_slim_with_the_fusion_of_demo(name):
    dataset, _ = name.split("/")
    mine, slim = recipe(name).model, recipe(f"{dataset}/slim").model
    moe_heads = HOST[dataset][1] if dataset in HOST else 4
    assert mine == replace(slim, fusion="hdm_atmoe", moe_heads=moe_heads)
