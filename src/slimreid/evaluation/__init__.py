"""Measuring retrieval: mAP, CMC, mINP, ROC, intervals and re-ranking, in bounded memory."""

from slimreid.evaluation.bootstrap import Interval, PairedDifference, bootstrap_map, paired_bootstrap
from slimreid.evaluation.camera_pairs import CameraPairs, camera_pair_map
from slimreid.evaluation.chance import chance_map
from slimreid.evaluation.metrics import evaluate_retrieval
from slimreid.evaluation.rerank import KReciprocal, RerankedScores
from slimreid.evaluation.result import RetrievalResult
from slimreid.evaluation.roc import FALSE_MATCH_RATES, OperatingPoint, ScoreHistogram

__all__ = [
    "FALSE_MATCH_RATES",
    "CameraPairs",
    "Interval",
    "KReciprocal",
    "OperatingPoint",
    "PairedDifference",
    "RerankedScores",
    "RetrievalResult",
    "ScoreHistogram",
    "bootstrap_map",
    "camera_pair_map",
    "chance_map",
    "evaluate_retrieval",
    "paired_bootstrap",
]
