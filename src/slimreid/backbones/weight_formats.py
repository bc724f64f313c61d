"""The names under which public weights are stored, as tables.

A rule is a line `old name -> new name`. In old names `{p}` stands for the prefix of the family (`visual.`,
...), `{layer}` for the list of blocks under any name that Hugging Face gives it; in both, `{i}` is the
number of a block and `{wb}` is `weight` or `bias`; `{any}` is anything. The engine is in `weight_conversion`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Rule:
    """One line of a table: a tensor of the file, its name here, and how it is changed."""

    old: str
    new: str
    change: str = ""
    """'' as it is, `transpose`, or `row` (a leading axis of size 1 until there are three)."""
    part: int | None = None
    """Place among the tensors that are joined along the first axis under the same new name; None = alone."""
    absent: str = "refuse"
    """What a missing part means: `refuse`, `zeros` (of the size of its neighbours) or `skip`."""


@dataclass(frozen=True)
class WeightFormat:
    """The table of one family."""

    name: str
    prefixes: tuple[str, ...]
    """Possible values of `{p}`; the first under which all `marks` are found is taken."""
    marks: tuple[str, ...]
    """Keys by which the family is recognised."""
    rules: tuple[Rule, ...]
    extras: tuple[str, ...] = ()
    """Keys that belong to the family but not to the backbone (heads, text tower); left out."""


def _layers(*pairs: tuple[str, str]) -> tuple[Rule, ...]:
    """Rules for layers with weight and bias."""
    return tuple(Rule(old + ".{wb}", new + ".{wb}") for old, new in pairs)


def _qkv(old: str, query: str, key: str, value: str) -> tuple[Rule, ...]:
    """Rules for separate query, key and value projections; DINOv3 has no bias on the keys."""
    new = "blocks.{i}.attn.qkv"
    return (
        *(
            Rule(f"{old}.{name}.weight", f"{new}.weight", part=i)
            for i, name in enumerate((query, key, value))
        ),
        Rule(f"{old}.{query}.bias", f"{new}.bias", part=0),
        Rule(f"{old}.{key}.bias", f"{new}.bias", part=1, absent="zeros"),
        Rule(f"{old}.{value}.bias", f"{new}.bias", part=2),
    )


# transformers renamed modules in version 5 but writes files under the old names; both are read.
_HF_BLOCK = "{p}{layer}.{i}"
_HF_RULES = (
    Rule("{p}embeddings.cls_token", "class_token"),
    Rule("{p}embeddings.register_tokens", "register_tokens"),
    Rule("{p}embeddings.position_embeddings", "position_embedding"),
    *_qkv(f"{_HF_BLOCK}.attention.attention", "query", "key", "value"),
    *_qkv(f"{_HF_BLOCK}.attention", "q_proj", "k_proj", "v_proj"),
    *_layers(
        (f"{_HF_BLOCK}.attention.output.dense", "blocks.{i}.attn.proj"),
        (f"{_HF_BLOCK}.attention.o_proj", "blocks.{i}.attn.proj"),
        (f"{_HF_BLOCK}.layernorm_before", "blocks.{i}.norm1"),
        (f"{_HF_BLOCK}.layernorm_after", "blocks.{i}.norm2"),
        (f"{_HF_BLOCK}.norm1", "blocks.{i}.norm1"),
        (f"{_HF_BLOCK}.norm2", "blocks.{i}.norm2"),
        (f"{_HF_BLOCK}.intermediate.dense", "blocks.{i}.mlp.fc1"),
        (f"{_HF_BLOCK}.output.dense", "blocks.{i}.mlp.fc2"),
        (f"{_HF_BLOCK}.mlp.fc1", "blocks.{i}.mlp.fc1"),
        (f"{_HF_BLOCK}.mlp.fc2", "blocks.{i}.mlp.fc2"),
        (f"{_HF_BLOCK}.mlp.weights_in", "blocks.{i}.mlp.fc1"),
        (f"{_HF_BLOCK}.mlp.weights_out", "blocks.{i}.mlp.fc2"),
        (f"{_HF_BLOCK}.mlp.down_proj", "blocks.{i}.mlp.fc2"),
    ),
    Rule(f"{_HF_BLOCK}.mlp.gate_proj.{{wb}}", "blocks.{i}.mlp.fc1.{wb}", part=0, absent="skip"),
    Rule(f"{_HF_BLOCK}.mlp.up_proj.{{wb}}", "blocks.{i}.mlp.fc1.{wb}", part=1),
    Rule(f"{_HF_BLOCK}.layer_scale1.lambda1", "blocks.{i}.scale1"),
    Rule(f"{_HF_BLOCK}.layer_scale2.lambda1", "blocks.{i}.scale2"),
)

SLIMREID = WeightFormat(
    "slimreid",
    prefixes=("",),
    marks=("patch_embed.weight", "blocks.0.attn.qkv.weight"),
    rules=tuple(
        Rule(name, name)
        for name in (
            "class_token",
            "register_tokens",
            "position_embedding",
            "camera_embedding",
            "patch_embed.{wb}",
            "pre_norm.{wb}",
            "blocks.{i}.norm1.{wb}",
            "blocks.{i}.attn.qkv.{wb}",
            "blocks.{i}.attn.proj.{wb}",
            "blocks.{i}.scale1",
            "blocks.{i}.norm2.{wb}",
            "blocks.{i}.mlp.fc1.{wb}",
            "blocks.{i}.mlp.fc2.{wb}",
            "blocks.{i}.scale2",
            "final_norm.{wb}",
            "projection.weight",
        )
    ),
)

OPENAI_CLIP = WeightFormat(
    "openai_clip",
    prefixes=("visual.", ""),
    marks=("{p}conv1.weight", "{p}class_embedding", "{p}transformer.resblocks.0.attn.in_proj_weight"),
    rules=(
        Rule("{p}class_embedding", "class_token", change="row"),
        Rule("{p}positional_embedding", "position_embedding", change="row"),
        Rule("{p}cv_embed", "camera_embedding"),
        Rule("{p}proj", "projection.weight", change="transpose"),
        Rule("{p}transformer.resblocks.{i}.attn.in_proj_{wb}", "blocks.{i}.attn.qkv.{wb}"),
        *_layers(
            ("{p}conv1", "patch_embed"),
            ("{p}ln_pre", "pre_norm"),
            ("{p}transformer.resblocks.{i}.ln_1", "blocks.{i}.norm1"),
            ("{p}transformer.resblocks.{i}.attn.out_proj", "blocks.{i}.attn.proj"),
            ("{p}transformer.resblocks.{i}.ln_2", "blocks.{i}.norm2"),
            ("{p}transformer.resblocks.{i}.mlp.c_fc", "blocks.{i}.mlp.fc1"),
            ("{p}transformer.resblocks.{i}.mlp.c_proj", "blocks.{i}.mlp.fc2"),
            ("{p}ln_post", "final_norm"),
        ),
    ),
    extras=(
        "transformer.resblocks.{any}",
        "token_embedding.weight",
        "positional_embedding",
        "ln_final.{wb}",
        "text_projection",
        "logit_scale",
        "attn_mask",
        "input_resolution",
        "context_length",
        "vocab_size",
    ),
)

HF_CLIP = WeightFormat(
    "hf_clip",
    prefixes=("vision_model.", ""),
    marks=("{p}embeddings.patch_embedding.weight", "{p}encoder.layers.0.self_attn.q_proj.weight"),
    rules=(
        Rule("{p}embeddings.class_embedding", "class_token", change="row"),
        Rule("{p}embeddings.position_embedding.weight", "position_embedding", change="row"),
        *_qkv("{p}encoder.layers.{i}.self_attn", "q_proj", "k_proj", "v_proj"),
        *_layers(
            ("{p}embeddings.patch_embedding", "patch_embed"),
            ("{p}pre_layrnorm", "pre_norm"),  # spelt so in the published files
            ("{p}encoder.layers.{i}.layer_norm1", "blocks.{i}.norm1"),
            ("{p}encoder.layers.{i}.self_attn.out_proj", "blocks.{i}.attn.proj"),
            ("{p}encoder.layers.{i}.layer_norm2", "blocks.{i}.norm2"),
            ("{p}encoder.layers.{i}.mlp.fc1", "blocks.{i}.mlp.fc1"),
            ("{p}encoder.layers.{i}.mlp.fc2", "blocks.{i}.mlp.fc2"),
            ("{p}post_layernorm", "final_norm"),
            ("visual_projection", "projection"),
        ),
    ),
    extras=("text_model.{any}", "text_projection.weight", "logit_scale", "{p}embeddings.position_ids"),
)

HF_VIT = WeightFormat(
    "hf_vit",
    prefixes=("", "vit."),
    marks=("{p}embeddings.patch_embeddings.projection.weight", "{p}{layer}.0.layernorm_before.weight"),
    rules=(
        *_HF_RULES,
        *_layers(
            ("{p}embeddings.patch_embeddings.projection", "patch_embed"), ("{p}layernorm", "final_norm")
        ),
    ),
    extras=("{p}pooler.dense.{wb}", "classifier.{wb}", "{p}embeddings.mask_token"),
)

HF_DINOV2 = replace(
    HF_VIT,
    name="hf_dinov2",
    prefixes=("", "dinov2.", "dinov2_with_registers."),
    marks=("{p}embeddings.patch_embeddings.projection.weight", "{p}{layer}.0.layer_scale1.lambda1"),
    extras=("classifier.{wb}", "{p}embeddings.mask_token"),
)

HF_DINOV3 = WeightFormat(
    "hf_dinov3",
    prefixes=("", "dinov3_vit."),
    marks=("{p}embeddings.patch_embeddings.weight", "{p}{layer}.0.layer_scale1.lambda1"),
    rules=(
        *_HF_RULES,
        *_layers(("{p}embeddings.patch_embeddings", "patch_embed"), ("{p}norm", "final_norm")),
    ),
    extras=("classifier.{wb}", "{p}embeddings.mask_token", "{p}rope_embeddings.{any}"),
)

TIMM = WeightFormat(
    "timm",
    prefixes=("",),
    marks=("patch_embed.proj.weight", "blocks.0.attn.qkv.weight"),
    rules=(
        Rule("cls_token", "class_token"),
        Rule("reg_token", "register_tokens"),
        Rule("register_tokens", "register_tokens"),
        Rule("pos_embed", "position_embedding"),
        Rule("sie_embed", "camera_embedding"),
        Rule("blocks.{i}.ls1.gamma", "blocks.{i}.scale1"),
        Rule("blocks.{i}.ls2.gamma", "blocks.{i}.scale2"),
        *_layers(
            ("patch_embed.proj", "patch_embed"),
            ("norm_pre", "pre_norm"),
            ("blocks.{i}.norm1", "blocks.{i}.norm1"),
            ("blocks.{i}.attn.qkv", "blocks.{i}.attn.qkv"),
            ("blocks.{i}.attn.proj", "blocks.{i}.attn.proj"),
            ("blocks.{i}.norm2", "blocks.{i}.norm2"),
            ("blocks.{i}.mlp.fc1", "blocks.{i}.mlp.fc1"),
            ("blocks.{i}.mlp.fc2", "blocks.{i}.mlp.fc2"),
            ("blocks.{i}.mlp.w12", "blocks.{i}.mlp.fc1"),
            ("blocks.{i}.mlp.w3", "blocks.{i}.mlp.fc2"),
            ("norm", "final_norm"),
        ),
    ),
    extras=("head.{wb}", "head_dist.{wb}", "fc.{wb}", "pre_logits.fc.{wb}", "mask_token"),
)

FORMATS: dict[str, WeightFormat] = {
    table.name: table for table in (SLIMREID, OPENAI_CLIP, HF_CLIP, HF_VIT, HF_DINOV2, HF_DINOV3, TIMM)
}
