import itertools
import warnings
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from slimreid.backbones.vit import ViT
from slimreid.config import ModelConfig
from slimreid.config.backbones import ViTConfig
from slimreid.config.model import ReIDOptions
from slimreid.config.token_reduction import AfterBackboneConfig, InBackboneConfig
from slimreid.data.batches import ModalBatch
from slimreid.errors import ConfigError, ModelError, SlimReIDWarning
from slimreid.modalities import all_subsets
from slimreid.models.reid_model import ReIDModel, build_model
from slimreid.profiling.cost import summarise
from support.ways import NAMES, SIZE, cameras, every_way, images, make


@every_way
@pytest.mark.parametrize("heads", ["direct", "split"])
@pytest.mark.parametrize("names", [("rgb",), ("rgb", "tir"), NAMES, (*NAMES, "depth")])
def test_every_combination_gives_named_features_and_logits(way, heads, names):
    model = make(names, heads=heads, global_local=True, **way)
    out = model.train()(images(names=names), cameras())
    second = ["slimmed" if way["fusion"] == "mean" and way["reduction"] != "none" else "fused"]
    second = [] if way["fusion"] == "none" else second
    assert list(out.features) == ["original", *second, "both"]
    assert {n: f.shape[1] for n, f in out.features.items()} == model.sizes
    assert out.features["original"].shape == (4, 96 * len(names))
    first = ["original"] if heads == "direct" else [f"original.{n}" for n in names]
    assert list(out.logits) == [*first, *second]
    assert all(logits.shape == (4, 5) for logits in out.logits.values())
    sum(logits.square().sum() for logits in out.logits.values()).backward()
    lost = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert all(name.startswith("after_backbone.scorers") for name in lost), lost
    out = model.eval()(images(names=names), cameras())
    assert out.logits == {}
    assert list(out.features) == ["original", *second, "both"]


@every_way
def test_a_mixed_batch_equals_its_samples_one_by_one(way):
    """Whatever subset each sample has, others in the batch do not matter, nor what absent images hold."""
    model = make(global_local=True, **way).eval()
    subsets = all_subsets(NAMES)
    B = len(subsets)
    x = images(B)
    present = torch.tensor([[name in subset for name in NAMES] for subset in subsets])
    for m, name in enumerate(NAMES):
        x[name][~present[:, m]] = float("nan")
    whole = model(x, cameras(B), present)
    for b, subset in enumerate(subsets):
        alone = model({name: x[name][b : b + 1] for name in subset}, cameras(B)[b : b + 1])
        for name, feature in alone.features.items():
            assert_close(whole.features[name][b], feature[0], atol=1e-5, rtol=1e-5)


@every_way
def test_embedding_blocks_are_normalised_and_absent_ones_filled(way):
    model = make(**way).eval()
    x = images()
    present = torch.tensor(
        [[True, True, True], [True, False, False], [False, True, True], [False, False, True]]
    )
    out = model(x, cameras(), present)
    blocks = out.features["original"].view(4, 3, 96)
    for b in range(4):
        assert_close(blocks[b, present[b]].norm(dim=-1), torch.ones(int(present[b].sum())))
        for m in range(3):
            if not present[b, m]:
                assert_close(blocks[b, m], 0.1 * blocks[b, present[b]].mean(0))


@every_way
def test_disjoint_modalities_can_be_compared(way):
    model = make(**way).eval()
    x = images(6)
    query = F.normalize(model({"rgb": x["rgb"]}, cameras(6)).features["both"], dim=1)
    gallery = F.normalize(model({"tir": x["tir"]}, cameras(6)).features["both"], dim=1)
    scores = query @ gallery.T
    assert scores.isfinite().all()
    assert scores.std() > 1e-4


def test_zeros_is_the_old_simulation():
    model = make(missing="zeros").eval()
    x = images()
    present = torch.tensor([[True, False, True]] * 4)
    simulated = {**x, "nir": torch.zeros_like(x["nir"])}
    expected = model(simulated, cameras()).features["both"]
    assert_close(model(x, cameras(), present).features["both"], expected)
    assert_close(model({k: x[k] for k in ("rgb", "tir")}, cameras()).features["both"], expected)
    skipped = make(missing="skip").eval()(x, cameras(), present).features["both"]
    assert not torch.allclose(skipped, expected, atol=1e-3)


def test_absent_modalities_are_not_computed(monkeypatch):
    model = make().eval()
    rows = []
    original = model.backbone.forward
    monkeypatch.setattr(model.backbone, "forward", lambda x, *a: rows.append(len(x)) or original(x, *a))
    present = torch.tensor([[True, False, False], [True, False, True]])
    model(images(2), cameras(2), present)
    model(images(2), cameras(2))
    assert rows == [3, 6], "one call, present rows only"


def test_modal_batch_brings_everything():
    model = make(fusion="mean").eval()
    x = images()
    present = torch.tensor(
        [[True, True, True], [True, False, True], [True, True, False], [False, True, True]]
    )
    numbers = torch.arange(4)
    batch = ModalBatch(x, present, numbers, cameras(), numbers, ({},) * 4)
    assert_close(model(batch).features["both"], model(x, cameras(), present).features["both"])
    reordered = ModalBatch(
        {n: x[n] for n in ("tir", "rgb", "nir")},
        present[:, [2, 0, 1]],
        numbers,
        cameras(),
        numbers,
        ({},) * 4,
    )
    assert_close(model(reordered).features["both"], model(batch).features["both"])


def test_training_and_test_share_the_path():
    """Without noise, dropout and normalisation, both modes give the same features."""
    model = make(missing="zeros", fusion="mean")
    x = images()
    assert_close(model.train()(x, cameras()).features["both"], model.eval()(x, cameras()).features["both"])


def test_selection_on_request():
    model = make(after_backbone=AfterBackboneConfig(score_terms=("learned", "self", "cross"))).eval()
    assert model(images(), cameras()).reduced is None
    present = torch.tensor([[True, True, False]] * 4)
    slimmed = model(images(), cameras(), present, with_reduced=True).reduced
    assert slimmed.selection.index.shape == (4, 3, 4), "half of the 4 × 2 patches"
    assert set(slimmed.selection.scores) == {"learned", "self", *NAMES}
    assert (slimmed.tokens[:, 2] == 0).all()


@pytest.mark.parametrize("heads", ["direct", "split"])
def test_heads_of_absent_modalities_ignore_those_rows(heads):
    model = make(heads=heads, reduction="none", fusion="none").train()
    present = torch.tensor(
        [[True, True, True], [True, False, True], [True, False, True], [True, False, True]]
    )
    out = model(images(), cameras(), present)
    if heads == "split":
        assert "original.nir" not in out.logits, "one row is too few for a BatchNorm"
        assert out.valid["original.rgb"].all()
    present[1, 1] = True
    out = model(images(), cameras(), present)
    if heads == "split":
        assert out.valid["original.nir"].tolist() == [True, True, False, False]
        assert (out.logits["original.nir"][2:] == 0).all()
    else:
        assert out.logits["original"].isfinite().all()


def test_split_heads_of_both_branches_see_each_modality_alone():
    """A modality's neck learns from the rows that have it, not from what fills the gap in others."""
    model = make(heads="split_all", reduction="none", fusion="mean", neck_feature="after").train()
    present = torch.tensor(
        [[True, True, False], [True, True, False], [True, False, False], [True, False, False]]
    )
    out = model(images(), cameras(), present)
    assert list(out.logits) == ["original.rgb", "original.nir", "fused.rgb", "fused.nir"], "tir sits out"
    pooled = model.backbone(images()["nir"][:2], cameras()[:2]).patches.mean(1)
    assert_close(out.head_features["fused.nir"][:2], pooled)
    neck = model.heads.head("fused.nir").neck
    assert_close(neck.running_mean, 0.1 * pooled.mean(0).detach())
    assert out.logits["fused.nir"][2:].abs().max() == 0
    with pytest.raises(ConfigError, match="split_all"):
        make(heads="split_all", reduction="none", fusion="hdm")


def test_unknown_cameras_get_the_mean_with_one_warning():
    model = make().eval()
    x = images(2)
    with pytest.warns(SlimReIDWarning, match="camera 7"):
        first = model(x, torch.tensor([0, 7])).features["both"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(model(x, torch.tensor([0, 9])).features["both"], first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({},), "nothing"),
        (({"depth": torch.zeros(2, 3, *SIZE)},), "depth"),
        (({"rgb": torch.zeros(2, 3, 32, 16), "tir": torch.zeros(2, 3, 16, 32)},), "one shape"),
        ((images(2), None, torch.ones(2, 2, dtype=torch.bool)), r"present must be bool \(2, 3\)"),
        ((images(2), None, torch.ones(2, 3)), "present must be bool"),
        ((images(2), None, torch.tensor([[True] * 3, [False] * 3])), "sample 1 .* no image"),
        (({"rgb": torch.zeros(2, 3, *SIZE)}, None, torch.tensor([[False, True, True]] * 2)), "sample 0"),
        ((images(2), torch.arange(5)), r"cameras must be int64 \(2,\), not torch.int64 \(5,\)"),
        ((images(2), torch.zeros(2)), r"cameras must be int64 \(2,\), not torch.float32"),
        (({"rgb": torch.zeros(2, 3, *SIZE, dtype=torch.uint8)},), "'rgb' must be floating-point"),
    ],
)
def test_inputs_that_do_not_fit(arguments, message):
    with pytest.raises(ModelError, match=message):
        make(cameras=0)(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "nanno"}, "did you mean 'nano'"),
        ({"fusion": "none"}, "model.reduction 'after_backbone' makes tokens for the second branch"),
        (
            {"reduction": "none", "after_backbone": AfterBackboneConfig(keep_ratio=0.3)},
            r"model\.after_backbone\.keep_ratio is set, but model\.reduction is 'none'",
        ),
        (
            {"in_backbone": InBackboneConfig(dropped="discard")},
            r"model\.in_backbone\.dropped is set, but model\.reduction is 'after_backbone'",
        ),
        ({"drop_path": 1.0}, "drop_path"),
        ({"moe_heads": 0}, "moe_heads"),
        ({"fusion_weight": -1.0}, "fusion_weight"),
        ({"missing_fill_scale": 1.5}, "missing_fill_scale"),
        ({"fusion_weight": float("nan")}, "fusion_weight"),
        ({"names": ("rgb", "self")}, "'self' cannot be the name"),
        ({"names": ("rgb", "a.b"), "reduction": "none", "fusion": "none"}, "'a.b' cannot be the name"),
        ({"cameras": -1}, "cameras must not be negative"),
        ({"fusion": "hdm_atmoe", "moe_heads": 7}, "moe_heads 7"),
    ],
)
def test_contradictory_options(options, message):
    with pytest.raises(ConfigError, match=message):
        make(**options)


def test_constructor_refuses_unknown_words():
    with pytest.raises(ConfigError, match=r"model\.fusion: 'maen' is unknown; did you mean 'mean'"):
        ReIDOptions(fusion="maen")


def test_constructors_say_nothing(capsys):
    make(reduction="none", fusion="hdm_atmoe", global_local=True)
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_options_reach_the_model():
    model = make(
        after_backbone=AfterBackboneConfig(shared=True),
        fusion_weight=0.5,
        drop_path=0.2,
        camera_scale=2.0,
        stride=(4, 4),
    )
    assert list(model.after_backbone.scorers) == ["shared"]
    assert model.branch_weights == {"original": 1.0, "slimmed": 0.5}
    assert model.backbone.config.drop_path == 0.2
    assert model.backbone.config.camera_scale == 2.0
    assert model.backbone.grid == (7, 3)
    assert make(reduction="none", fusion="hdm_atmoe", moe_heads=2).moe.heads == 2
    assert make(grad_checkpointing=True).backbone.config.grad_checkpointing


def tiny(**options):
    torch.manual_seed(0)
    vit = ViT(ViTConfig(width=32, depth=1, heads=2, mlp_width=64, patch_size=8, cameras=3), SIZE)
    return ReIDModel(vit, NAMES, 5, ReIDOptions(after_backbone=AfterBackboneConfig(**options)))


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0, 10.0])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_gumbel_training_stays_finite_and_of_natural_size(tau, precision):
    """A hundred steps; the predictor's gradient neither explodes nor drowns (it did: 1e10 in the mask)."""
    model = tiny(estimator="gumbel", tau=tau)
    twin = tiny()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, labels = images(8), torch.arange(8) % 5

    def gradients(m, step):
        torch.manual_seed(step)
        m.train().zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            out = m(x, cameras(8))
        loss = sum(F.cross_entropy(v.float(), labels) for v in out.logits.values())
        loss.backward()
        assert loss.isfinite()
        norms = {n: float(p.grad.norm()) for n, p in m.named_parameters() if p.grad is not None}
        predictor = sum(v**2 for n, v in norms.items() if "scorers" in n) ** 0.5
        return predictor, max(v for n, v in norms.items() if "scorers" not in n), norms

    for step in range(100):
        predictor, largest, norms = gradients(model, step)
        assert all(torch.isfinite(torch.tensor(v)) for v in norms.values())
        assert predictor <= largest
        if tau >= 0.5 and step % 20 == 0:
            twin.load_state_dict(model.state_dict())
            reference, *_ = gradients(twin, step)
            assert 0.1 <= predictor / reference <= 10
            gradients(model, step)
        optimizer.step()


@every_way
def test_summary_adds_up(way):
    model = make(global_local=True, **way)
    result = summarise(model)
    assert (
        result.parameters
        == sum(p.numel() for p in model.parameters())
        == sum(p.parameters for p in result.parts)
    )
    assert result.gflops == pytest.approx(sum(p.gflops for p in result.parts), rel=1e-6)
    assert result.features == model.sizes
    backbone = next(p for p in result.parts if p.name == "backbone")
    N, W, H = 8, 96, 288
    T = N + 1
    macs = N * 3 * 64 * W + 4 * (T * (4 * W * W + 2 * W * H) + 2 * T * T * W)
    if way["reduction"] != "in_backbone":
        assert backbone.gflops == pytest.approx(3 * macs / 1e9, rel=1e-6), "attention is counted"
    if way["reduction"] == "after_backbone":
        assert dict(result.tokens) == {"patches": 8, "kept": 4, "merged": 1, "with leftover": 2}
    assert summarise(make(NAMES[:1], reduction="none", fusion="none")).gflops == pytest.approx(
        macs / 1e9, rel=1e-6
    )


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_forward_gives_the_same():
    model = make(cameras=0).eval()
    x = images()
    expected = model(x).features["both"]
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert_close(compiled(x).features["both"], expected)


def test_subsets_cover_all_pairs():
    """Every pair of query and gallery subsets has a defined, finite score."""
    model = make(fusion="mean").eval()
    x = images(2)
    features = [model({n: x[n] for n in s}, cameras(2)).features["both"] for s in all_subsets(NAMES)]
    for a, b in itertools.combinations(features, 2):
        assert (F.normalize(a, dim=1) @ F.normalize(b, dim=1).T).isfinite().all()


@pytest.mark.parametrize("names", [("nir",), ("rgb", "tir"), NAMES])
@pytest.mark.parametrize("missing", ["skip", "zeros"])
def test_an_empty_batch_of_any_subset_gives_empty_features(names, missing):
    model = make(missing=missing).eval()
    out = model(images(0, names), torch.zeros(0, dtype=torch.int64))
    assert {name: tuple(f.shape) for name, f in out.features.items()} == {
        name: (0, size) for name, size in model.sizes.items()
    }


@every_way
def test_one_sample_cannot_be_trained_on_but_embedded(way):
    model = make(**way)
    with pytest.raises(ModelError, match="training needs at least two samples in a batch, not 1"):
        model.train()(images(1), cameras(1))
    assert len(model.eval()(images(1), cameras(1)).features["both"]) == 1


@pytest.mark.parametrize("classes", [0, -1])
def test_a_model_needs_a_class(classes):
    with pytest.raises(ConfigError, match=f"classes must be at least 1, not {classes}"):
        build_model(ModelConfig(backbone="nano"), SIZE, NAMES, classes)


def test_weights_of_branches_reach_the_loss():
    assert make(fusion_weight=0.5).branch_weights == {"original": 1.0, "slimmed": 0.5}
    assert make(reduction="none", fusion="none").branch_weights == {"original": 1.0}


@pytest.mark.parametrize("heads", ["direct", "split"])
def test_fusion_by_the_mean_of_all_patches(heads):
    model = make(reduction="none", fusion="mean", heads=heads, missing="zeros")
    x = images()
    assert model.train()(x, cameras()).logits["fused"].shape[0] == 4
    model.eval()
    expected = [model.backbone(x[name], cameras()).patches.mean(1) for name in NAMES]
    found = model(x, cameras()).features
    assert_close(found["fused"], torch.cat(expected, dim=1))
    assert {n: f.shape[1] for n, f in found.items()} == model.sizes


@pytest.mark.parametrize("heads", ["direct", "split"])
@every_way
def test_features_after_the_neck(way, heads):
    """In test each branch goes through the BNNeck of its heads; blocks that lack keep the rule of the mean."""
    model = make(heads=heads, missing="zeros", neck_feature="after", **way)
    model.train()(images(), cameras())
    model.eval()
    x = images(seed=4)
    after = model(x, cameras()).features
    model.options = replace(model.options, neck_feature="before")
    before = model(x, cameras()).features
    for branch in [b for b in before if b != "both"]:
        names = [branch] if branch in model.head_names else [f"{branch}.{m}" for m in NAMES]
        parts = before[branch].chunk(len(names), dim=1)
        normed = [model.heads[n.replace(".", "_")].neck(p) for n, p in zip(names, parts, strict=True)]
        assert_close(after[branch], torch.cat(normed, dim=1))
    model.options = replace(model.options, neck_feature="after", missing="skip")
    some = model({"nir": x["nir"]}, cameras()).features["original"].view(4, 3, -1)
    assert_close(some[:, 0], 0.1 * some[:, 1])
    assert_close(some.norm(dim=-1), torch.tensor([0.1, 1.0, 0.1]).expand(4, 3))
