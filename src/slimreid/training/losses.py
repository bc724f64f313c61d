"""What training minimises, as named scalars.

Per head, `identity_weight · cross-entropy + metric_weight · metric`, times the weight of the head's
branch; the heads are added, and on top the ratio loss of the token reduction and `distill_weight · distill`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import BatchHardMiner
from pytorch_metric_learning.reducers import MeanReducer
from torch import Tensor

from slimreid.config import LossConfig
from slimreid.config.model import ORIGINAL
from slimreid.errors import ModelError
from slimreid.models.heads import ReIDOutput

MetricLoss = Callable[[Tensor, Tensor], Tensor]
"""features (B, D), identity (B,) -> scalar."""

IDENTITY, RATIO, DISTILL, TOTAL = "identity", "ratio", "distill", "total"


def batch_hard_triplet(margin: float | None = None) -> MetricLoss:
    """Each anchor against its farthest positive and its nearest negative, un-normalised features.

    Without a margin the soft one, log(1 + exp(d_p − d_n)); otherwise max(0, d_p − d_n + margin). The
    mean is over the anchors that have a positive and a negative; 0 when there is none.
    """
    miner = BatchHardMiner(distance=LpDistance(normalize_embeddings=False))
    loss = TripletMarginLoss(
        margin=margin or 0.0,
        smooth_loss=margin is None,
        distance=LpDistance(normalize_embeddings=False),
        reducer=MeanReducer(),
    )

    def triplet(features: Tensor, identity: Tensor) -> Tensor:
        value: Tensor = loss(features, identity, miner(features, identity))
        return value

    return triplet


class ReIDLoss:
    """Losses of all heads, in fp32 whatever the precision of the forward pass.

    `branch_weights` has a weight for each branch (`original`, `slimmed`, `fused`), usually the model's
    own; the heads of a branch (`original.rgb`, ...) share its weight and are added.
    """

    def __init__(self, config: LossConfig, branch_weights: Mapping[str, float]) -> None:
        self.config = config
        self.branch_weights = dict(branch_weights)
        self.metric = batch_hard_triplet(config.margin if config.metric == "triplet_margin" else None)

    def __call__(
        self, output: ReIDOutput, identity: Tensor, distill: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Scalars `<head>/identity`, `<head>/<metric>`, `ratio`, `distill` and `total`, the weighted sum.

        All but `total` are without weights (the ratio loss has that of its own option). A loss of weight 0 is
        left out, and so is a head that sat the step out. `identity` (B,) int64 must have as many rows
        as the heads' features; `distill` is the distance to a teacher. Raises `ModelError` when it has
        not, or in test mode.
        """
        if not output.logits and not output.valid:
            raise ModelError("no class scores to learn from: the model must be in training mode")
        losses: dict[str, Tensor] = {}
        weights: dict[str, float] = {}
        with torch.autocast(identity.device.type, enabled=False):
            for head, logits in output.logits.items():
                found = self._head(head, logits, output, identity)
                weight = self.branch_weights[head.partition(".")[0]]
                losses |= {f"{head}/{name}": value for name, value in found.items()}
                weights |= {f"{head}/{name}": weight * self._weight(name) for name in found}
            if output.ratio_loss is not None:
                losses[RATIO], weights[RATIO] = output.ratio_loss.float(), 1.0
            if distill is not None:
                losses[DISTILL], weights[DISTILL] = distill.float(), self.config.distill_weight
            parts = [weights[name] * value for name, value in losses.items()]
            # Zero when every head sat out, but connected to the graph, so that a backward pass is possible.
            total = torch.stack(parts).sum() if parts else output.features[ORIGINAL].float().sum() * 0
        return {**losses, TOTAL: total}

    def _weight(self, name: str) -> float:
        return self.config.identity_weight if name == IDENTITY else self.config.metric_weight

    def _head(self, head: str, logits: Tensor, output: ReIDOutput, identity: Tensor) -> dict[str, Tensor]:
        """Unweighted losses of one head."""
        before = self.config.metric_feature == "before"
        features = (output.head_features if before else output.neck_features)[head]
        valid = output.valid.get(head)
        if len(identity) != len(logits):
            raise ModelError(
                f"head '{head}' has {len(logits)} rows but there are {len(identity)} identities; "
                "with several processes, gather both or neither"
            )
        if valid is not None:
            logits, features, identity = logits[valid], features[valid], identity[valid]
        found: dict[str, Tensor] = {}
        if self.config.identity_weight:
            smoothing = self.config.label_smoothing
            found[IDENTITY] = F.cross_entropy(logits.float(), identity, label_smoothing=smoothing)
        if self.config.metric_weight:
            features, length = features.float(), self.config.metric_norm
            features = features if length is None else length * F.normalize(features)
            found[self.config.metric] = self.metric(features, identity)
        return found


@torch.no_grad()
def accuracy(output: ReIDOutput, identity: Tensor) -> float:
    """Share of rows whose identity the first head gets right; nan when every head sat the step out."""
    if not output.logits:
        return float("nan")
    head, logits = next(iter(output.logits.items()))
    right = logits.argmax(1) == identity
    valid = output.valid.get(head)
    return float((right if valid is None else right[valid]).float().mean())
