"""One sample through a trained model, ready to be drawn: its kept patches, and what it finds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image

from slimreid.arrays import Floats
from slimreid.config.model import BOTH
from slimreid.data.batches import ModalBatch
from slimreid.data.lookup import find_sample
from slimreid.data.manifest import SPLITS, Sample
from slimreid.data.sample_reader import SampleReader, join_samples
from slimreid.devices import autocast
from slimreid.errors import ConfigError, DataError, ModelError, SlimReIDWarning
from slimreid.evaluation.metrics.ranking import PositiveIndex
from slimreid.evaluation.metrics.retrieval import evaluate_scores
from slimreid.evaluation.metrics.scores import SimilarityScores
from slimreid.evaluation.query_gallery import SPLITS_OF, Part, retrieval_labels, side_rows
from slimreid.evaluation.reports.evaluate import evaluation_folder
from slimreid.evaluation.reports.feature_metrics import prepare_rows
from slimreid.inference.features.data import ModelData, camera_numbers, eval_config
from slimreid.inference.features.extract import Extraction, extract_features
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import check_kind, join_branches
from slimreid.inference.trained_model import TrainedModel
from slimreid.modalities import parse_subset
from slimreid.models.heads import ReIDOutput
from slimreid.visual.patches.figure import draw_kept_patches
from slimreid.visual.patches.kept_patches import PatchView, reduced_views
from slimreid.visual.ranks.rank_lists import FirstItems, open_samples, rank_list
from slimreid.visual.ranks.rank_sheet import draw_rank_lists
from slimreid.visual.style import LIGHT, Look


@dataclass(frozen=True, eq=False)
class SeenSample:
    """A sample, and what a model made of it."""

    sample: Sample
    name: str
    """Name of its first file without suffix, which also names its pictures."""
    images: dict[str, Image.Image]
    """As the model saw them; absent modalities are left out."""
    without: tuple[str, ...]
    """Modalities that were left out on request."""
    branches: dict[str, Floats]
    """Its feature (1, D) per branch of the model."""
    modalities: tuple[str, ...]
    """Those of the model."""
    output: ReIDOutput | None = None
    """All that torch computed; None for an exported model."""
    grid: tuple[int, int] = (0, 0)
    """Patches of an image (down, across)."""
    stages: tuple[str, ...] = ()
    """Names of the stages of token reduction in the backbone."""

    @property
    def title(self) -> str:
        """Who it is and where it was seen."""
        lacking = f" · without {', '.join(self.without)}" if self.without else ""
        return f"{self.name} · identity {self.sample.identity} · camera {self.sample.camera}{lacking}"

    def views(self) -> list[PatchView]:
        """Its kept patches per modality; raises `ModelError` for a model without token reduction."""
        if self.output is None:
            raise ModelError(
                "an exported model does not report the patches it kept; give the run it came from"
            )
        if self.output.reduced is None:
            raise ModelError("this model has no token reduction: it keeps all patches")
        reduced, present = self.output.reduced, self.output.present
        return reduced_views(reduced, 0, self.images, self.modalities, self.grid, present, self.stages)


def open_sample(loaded: LoadedModel, data: ModelData, name: str, missing: str | None = None) -> SeenSample:
    """Show a sample to a model, as evaluation does; `name` as in `find_sample`.

    `missing` names modalities to leave out. Raises `DataError` for a sample that is not there or of which
    nothing would be left, `ConfigError` for unknown modalities.
    """
    sample = data.manifest.samples[find_sample(data.manifest, name)]
    without = parse_subset(missing, loaded.modalities) if missing else ()
    left = tuple(m for m in loaded.modalities if m in sample.images and m not in without)
    if not left:
        raise ConfigError(
            f"--without {missing}: nothing is left of '{name}', which has {', '.join(sample.images)}"
        )
    config = eval_config(loaded, data, workers=0)
    one = data.manifest.with_samples([sample])
    reader = SampleReader(one, SPLITS, config.transforms, config.data)
    camera = camera_numbers(loaded, data).camera[sample.camera]
    batch = join_samples([reader.read(0)], one.modalities, reader.size, [camera], [0]).only(left)
    assert batch is not None
    resized = reader.resized(sample)
    images = {m: Image.fromarray(resized[m].transpose(1, 2, 0)) for m in left}
    stem = PurePosixPath(next(iter(sample.images.values())).path).stem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SlimReIDWarning)  # an unknown camera does not matter here
        if not isinstance(loaded, TrainedModel):
            return SeenSample(sample, stem, images, without, loaded.features(batch), loaded.modalities)
        with torch.no_grad(), autocast(loaded.precision, loaded.device):
            seen = ModalBatch.from_images(batch).to(loaded.device)
            output: ReIDOutput = loaded.model(seen, with_reduced=True)
    if output.present is None:  # zeros stand for what is absent: mid-grey, after normalisation
        grey = Image.new("RGB", config.transforms.size[::-1], (round(255 * config.transforms.mean),) * 3)
        images |= {m: grey for m in loaded.modalities if m not in images}
    model = loaded.model
    reducer = model.in_backbone
    stages = tuple(f"block {stage.block + 1}" for stage in reducer.stages) if reducer else ()
    plain = {n: f.float().cpu().numpy() for n, f in output.features.items() if n != BOTH}
    branches = loaded.adapted(plain, batch.presence_of(loaded.modalities), batch.camera)
    grid = model.backbone.grid
    return SeenSample(sample, stem, images, without, branches, loaded.modalities, output, grid, stages)


def draw_sample(seen: SeenSample, look: Look = LIGHT, token: int | None = None) -> Figure:
    """The kept-patch figure of a sample.

    Raises `ModelError` without token reduction, `ConfigError` for a token that is not there.
    """
    return draw_kept_patches(seen.views(), look, token=token, title=seen.title)


def part_of(data: ModelData, seen: SeenSample) -> Part:
    """The part of the data in which a sample is searched; raises `DataError` where it has no gallery."""
    split = seen.sample.split
    for part, splits in SPLITS_OF.items():
        if split in splits and data.manifest.select(splits[-1]):
            return part
    raise DataError(f"{seen.name} is a {split} sample and has no gallery to search; choose a query")


def rank_sample(
    loaded: LoadedModel,
    data: ModelData,
    seen: SeenSample,
    kind: str = "both",
    look: Look = LIGHT,
    length: int = 10,
) -> Image.Image:
    """The rank list of a sample in the gallery of its part, by one kind of feature.

    Features of the gallery are those of `slimreid evaluate`, if they are there. Raises `DataError` for a
    training sample, which has no gallery.
    """
    part = part_of(data, seen)
    check_kind(kind, tuple(loaded.sizes))
    samples = data.manifest.select(*SPLITS_OF[part])
    chosen = replace(data, manifest=data.manifest.with_samples(samples))
    folder = evaluation_folder(loaded.path, data, part)
    features = extract_features(loaded, chosen, options=Extraction(cache=folder))[chosen.manifest.modalities]
    _, gallery = side_rows(samples, part, features.rows.tolist())
    similarity = loaded.similarity(kind)
    present = np.array([[name in seen.images and name not in seen.without for name in loaded.modalities]])
    source = SimilarityScores(
        similarity,
        similarity.prepare(join_branches(seen.branches, kind), present),
        prepare_rows(features, kind, similarity, gallery),
    )
    rows = [next(i for i, s in enumerate(samples) if s is seen.sample)]
    labels = retrieval_labels(samples, rows, gallery, data.manifest.protocol)
    title = f"{seen.title} · by {kind}"
    matches = int(PositiveIndex(labels.encoded).counts()[0][0])
    if matches:
        result = evaluate_scores(source, labels, top_k=0)
        title += f" · AP {100 * result.map:.1f}"
    title += f" · {matches} correct match{'es' if matches != 1 else ''}"
    windows = eval_config(loaded, data).data.windows
    found = rank_list(
        FirstItems.from_scores(source, labels, 0, length),
        title,
        open_samples(data.manifest, [seen.sample], windows, seen.without)(0),
        seen.sample.camera,
        open_samples(data.manifest, [samples[row] for row in gallery], windows),
        [samples[row].camera for row in gallery],
    )
    return draw_rank_lists([found], loaded.modalities, look)
