"""Measuring a model while and after it is trained: features of a split, and how well they retrieve."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from slimreid.config import Config
from slimreid.config.model import BOTH, ORIGINAL
from slimreid.data.loader import BatchLoader, eval_loader
from slimreid.data.manifest import Manifest, Sample
from slimreid.devices import Precision
from slimreid.errors import ConfigError, DataError
from slimreid.evaluation import RetrievalResult, evaluate_retrieval
from slimreid.evaluation.metrics.labels import Labels
from slimreid.evaluation.metrics.ranking import has_matches
from slimreid.evaluation.query_gallery import SPLITS_OF, Part, parts_of, retrieval_labels, side_rows
from slimreid.inference.trained_model import embed_batches
from slimreid.models.reid_model import ReIDModel
from slimreid.training.distributed.processes import Processes, gather_rows

OnBatch = Callable[[int, int], None]
"""Called with (batches done, batches in all)."""


def check_parts(manifest: Manifest, select_on: str) -> tuple[Part, ...]:
    """The parts to evaluate; raises before training what would otherwise fail after it.

    `ConfigError` when the part that `select_on` names is absent, `DataError` when a part has no query
    with a correct match.
    """
    parts = parts_of(manifest)
    if select_on == "val" and "val" not in parts:
        raise ConfigError(
            "train.select_on is 'val', but the manifest has no val rows; import it with "
            "--val-identities 0.1, or set train.select_on to 'last' to take the last epoch without choosing"
        )
    if select_on == "test" and "test" not in parts:
        raise ConfigError("train.select_on is 'test', but the manifest has no query and gallery rows")
    for part in parts:
        query, gallery = side_rows(manifest.samples, part)
        if not has_matches(retrieval_labels(manifest.samples, query, gallery, manifest.protocol)):
            raise DataError(
                f"{manifest.root}: no query of '{part}' has a correct match under protocol "
                f"'{manifest.protocol}'; an identity must be seen in two places, see 'slimreid data check'"
            )
    return parts


SCALES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""Factors on the second branch that are tried."""


def choose_scale(features: Tensor, first: int, labels: Labels) -> float:
    """The factor of `SCALES` with the best mAP; of equal ones that nearest to 1.

    features (n, D) with `first` channels of the original branch in front; everybody searches among all.
    """
    maps = {}
    for scale in sorted(SCALES, key=lambda scale: abs(math.log(scale))):
        joint = torch.cat([features[:, :first], scale * features[:, first:]], dim=1)
        maps[scale] = evaluate_retrieval(joint, joint, labels, top_k=0).map
    return max(maps, key=lambda scale: maps[scale])


def extract(
    model: ReIDModel,
    loader: BatchLoader,
    device: torch.device,
    precision: Precision = "fp32",
    on_batch: OnBatch | None = None,
) -> tuple[Tensor, list[Sample]]:
    """Joint features (R, D) of everything in `loader`, float32, L2-normalised and on CPU, and their samples.

    In eval mode and in the order of the dataset. With several processes each does its batches, which are
    the same whatever their number, so features are too; all get all.
    """
    rows: list[tuple[Tensor, Tensor]] = []
    for number, found in enumerate(embed_batches(model, loader, device, precision), start=1):
        rows.append((F.normalize(found.features[BOTH].float()), found.batch.index))
        if on_batch is not None:
            on_batch(number, len(loader))
    if rows:
        features, index = (torch.cat(parts) for parts in zip(*rows, strict=True))
    else:  # more processes than batches
        features = torch.zeros(0, model.sizes[BOTH], device=device)
        index = torch.zeros(0, dtype=torch.int64, device=device)
    features, index = gather_rows(features).cpu(), gather_rows(index).cpu()
    order = index.argsort(stable=True)
    return features[order], [loader.dataset.samples[i] for i in index[order].tolist()]


class Evaluator:
    """Evaluates a model on the parts of a dataset, by its joint feature."""

    def __init__(self, config: Config, manifest: Manifest, processes: Processes) -> None:
        self.config, self.manifest, self.processes = config, manifest, processes
        self.loaders: dict[Part, BatchLoader] = {}

    def loader(self, part: Part) -> BatchLoader:
        """All samples of a part in order; made once, so that its workers stay alive."""
        if part not in self.loaders:
            self.loaders[part] = eval_loader(
                self.config, SPLITS_OF[part], self.manifest, self.processes.rank, self.processes.count
            )
        return self.loaders[part]

    def __call__(self, model: ReIDModel, part: Part, on_batch: OnBatch | None = None) -> RetrievalResult:
        """Retrieve the queries of a part in its gallery; every process must call it and gets the result."""
        loader = self.loader(part)
        precision = self.config.train.precision
        features, samples = extract(model, loader, self.processes.device, precision, on_batch)
        query, gallery = side_rows(samples, part)
        labels = retrieval_labels(samples, query, gallery, self.manifest.protocol)
        return evaluate_retrieval(features[query], features[gallery], labels)

    def best_scale(self, model: ReIDModel) -> float:
        """The factor on the second branch with which the joint feature retrieves best on val.

        Every process must call it and gets the same.
        """
        loader = self.loader("val")
        features, samples = extract(model, loader, self.processes.device, self.config.train.precision)
        rows = range(len(samples))
        labels = retrieval_labels(samples, rows, rows, self.manifest.protocol)
        return choose_scale(features, model.sizes[ORIGINAL], labels) * model.options.second_scale

    def reports(self) -> list[str]:
        """What was dropped for broken files, per part."""
        return [text for loader in self.loaders.values() if (text := loader.report())]
