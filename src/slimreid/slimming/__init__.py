"""Slimming: many patches become a few tokens, chosen under the eyes of guiding vectors.

A small library of its own: pure functions (`score_patches`, `keep_top_patches`, `merge_patches`), thin
modules around them, and named presets. It knows nothing of what the tokens are used for.
"""

from slimreid.slimming.estimators import annealed, decide, gumbel_noise, gumbel_softmax, soft_mask, soft_topk
from slimreid.slimming.leftovers import leftover_weights, regions_of
from slimreid.slimming.losses import ratio_loss
from slimreid.slimming.merging import DualPatchMerger, PatchMerger, merge_patches, merged_count
from slimreid.slimming.multimodal import MultiModalSlimmer, check_names, unpack
from slimreid.slimming.packing import Packing, pack_all, pack_present
from slimreid.slimming.presets import PRESETS, SlimmingOptions, slimming_options
from slimreid.slimming.scoring import (
    PatchScorer,
    PatchScores,
    contrast,
    min_max,
    score_patches,
    similarities,
)
from slimreid.slimming.selection import Selection, keep_top_patches, kept_count, stable_top, weigh_all_patches
from slimreid.slimming.slimmer import PatchSlimmer, Slimmed
from slimreid.slimming.stages import Stage, check_schedule, shrinking_share, stages_of

__all__ = [
    "PRESETS",
    "DualPatchMerger",
    "MultiModalSlimmer",
    "Packing",
    "PatchMerger",
    "PatchScorer",
    "PatchScores",
    "PatchSlimmer",
    "Selection",
    "Slimmed",
    "SlimmingOptions",
    "Stage",
    "annealed",
    "check_names",
    "check_schedule",
    "contrast",
    "decide",
    "gumbel_noise",
    "gumbel_softmax",
    "keep_top_patches",
    "kept_count",
    "leftover_weights",
    "merge_patches",
    "merged_count",
    "min_max",
    "pack_all",
    "pack_present",
    "ratio_loss",
    "regions_of",
    "score_patches",
    "shrinking_share",
    "similarities",
    "slimming_options",
    "soft_mask",
    "soft_topk",
    "stable_top",
    "stages_of",
    "unpack",
    "weigh_all_patches",
]
