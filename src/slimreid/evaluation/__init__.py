"""Measuring retrieval: mAP, CMC, mINP, ROC, intervals and re-ranking, in bounded memory."""

from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.metrics.result import (
    Interval,
    PairedDifference,
    RetrievalResult,
    bootstrap_map,
    paired_bootstrap,
)
from slimreid.evaluation.metrics.retrieval import CameraPairs, camera_pair_map, evaluate_retrieval
from slimreid.evaluation.metrics.roc import FALSE_MATCH_RATES, OperatingPoint, RocCurve

__all__ = [
    "FALSE_MATCH_RATES",
    "CameraPairs",
    "Interval",
    "KReciprocal",
    "Labels",
    "OperatingPoint",
    "PairedDifference",
    "RerankedScores",
    "RetrievalResult",
    "RocCurve",
    "bootstrap_map",
    "camera_pair_map",
    "evaluate_retrieval",
    "paired_bootstrap",
]
