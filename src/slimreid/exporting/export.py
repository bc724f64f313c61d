"""A trained model becomes a folder that onnxruntime runs: written whole and checked, or not at all."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from slimreid import __version__
from slimreid.config.model import BOTH
from slimreid.errors import ConfigError, ModelError
from slimreid.evaluation.metrics.result import RetrievalResult
from slimreid.exporting.agreement import check_agreement, engine_runner, torch_runner
from slimreid.exporting.check import Accuracy, Check, compare_results, search
from slimreid.exporting.graphs import WEIGHTS_NAME, export_graph, read_graph, write_graphs
from slimreid.exporting.int8_layers import MOST_SAMPLES, choose_layers, layer_errors
from slimreid.exporting.quantise import quantise
from slimreid.exporting.readme import readme
from slimreid.exporting.samples import CheckSamples, check_samples
from slimreid.files import file_digest, write_text
from slimreid.inference.exported_card import (
    README_NAME,
    ExportedCard,
    ExportPrecision,
    fresh_folder,
    write_adaptation,
    write_exported,
)
from slimreid.inference.load import load_trained
from slimreid.inference.onnx_engine import CAMERA, OnnxEngine
from slimreid.inference.similarity import Subset
from slimreid.inference.trained_model import TrainedModel
from slimreid.modalities import all_subsets, subset_name
from slimreid.progress import progress
from slimreid.threads import usable_threads

_MARGIN = 0.8
"""Share of `max_loss` that int8 may lose before more layers stay float32: other batches may lose more."""
_FLOAT = ".float32"
"""Folder of the float32 graphs while int8 ones are made of them."""


def export(
    model: TrainedModel | Path | str,
    out: Path | str,
    *,
    precision: ExportPrecision = "float32",
    data: Path | str | None = None,
    max_loss: float = 0.5,
    force: bool = False,
    overwrite: bool = False,
) -> ExportedCard:
    """Export a trained model to the folder `out`, and check it against the original.

    Args:
        model: A loaded model, or the folder of a run or a model file.
        out: The folder to write; it must not exist, or be empty, unless `overwrite`.
        precision: Numbers of the linear layers; everything else is float32.
        data: Manifest of samples to check on; default: the test split of the model's own data.
        max_loss: Points of mAP that the exported model may lose.
        force: Write it even if the check fails; its card says so.
        overwrite: Replace an exported model.

    Returns:
        What `model.json` in the folder says.

    Raises:
        ModelError: Where the exported model fails its check and `force` is not set; nothing is left behind.
        DataError: Where `out` exists, or the samples to check on cannot be read.
        ConfigError: For an option out of range.
    """
    if precision not in ("float32", "int8"):
        raise ConfigError(f"precision '{precision}' is neither float32 nor int8")
    if not 0 <= max_loss <= 100:
        raise ConfigError(f"--max-loss takes points of mAP from 0 to 100, not {max_loss:g}")
    manifest = None if data is None else Path(data)
    with fresh_folder(Path(out), overwrite) as folder:
        loaded = model if isinstance(model, TrainedModel) else load_trained(model)
        if next(loaded.model.parameters()).device.type != "cpu":
            raise ConfigError("export takes a model on the CPU; load it with device='cpu'")
        samples = check_samples(loaded, manifest)
        expected = search(loaded, torch_runner(loaded), samples, "embedding by the original")
        return _Export(loaded, folder, precision, max_loss, force, samples, expected).run()


@dataclass(frozen=True)
class _Export:
    """One export: graphs, check, card."""

    loaded: TrainedModel
    folder: Path
    precision: ExportPrecision
    max_loss: float
    force: bool
    samples: CheckSamples
    expected: RetrievalResult | None
    """What the original finds."""

    @cached_property
    def graphs(self) -> dict[Subset, str]:
        """File of the graph of each subset of the modalities."""
        names = self.loaded.modalities
        return {subset: f"graph-{subset_name(subset, names)}.onnx" for subset in all_subsets(names)}

    def run(self) -> ExportedCard:
        if self.precision == "float32":
            self._write_float32(self.folder)
            engine = self._engine(())
            return self._checked(engine, self._accuracy(engine))
        floats = self.folder / _FLOAT
        floats.mkdir()
        self._write_float32(floats)
        engine, accuracy = self._write_int8(floats)
        shutil.rmtree(floats)
        return self._checked(engine, accuracy)

    def _write_float32(self, folder: Path) -> None:
        bar = progress(self.graphs.items(), "exporting graphs", len(self.graphs))
        write_graphs(folder, ((name, export_graph(self.loaded.model, subset)) for subset, name in bar))

    def _write_int8(self, floats: Path) -> tuple[OnnxEngine, Accuracy | None]:
        """Write int8 graphs with as many layers in float32 as the accuracy needs."""
        tried: list[tuple[OnnxEngine, Accuracy | None]] = []

        def is_good(layers: tuple[str, ...]) -> bool:
            what = f"writing int8, {len(layers)} layers in float32"
            bar = progress(self.graphs.values(), what, len(self.graphs))
            write_graphs(self.folder, ((name, quantise(read_graph(floats, name), layers)) for name in bar))
            engine = self._engine(layers)
            accuracy = self._accuracy(engine)
            tried.append((engine, accuracy))
            return accuracy is None or accuracy.most_loss <= _MARGIN * self.max_loss

        whole, samples = self.loaded.modalities, self.samples
        graph = read_graph(floats, self.graphs[whole])
        rows = samples.have(whole)[:MOST_SAMPLES]  # modalities that a sample lacks are black
        rows = rows if len(rows) else np.arange(min(len(samples), MOST_SAMPLES))
        images, cameras = samples.take(whole, rows)
        feed: dict[str, Any] = {**images, CAMERA: cameras} if _takes_cameras(graph) else {**images}
        choose_layers(layer_errors(graph, feed, BOTH, usable_threads()), is_good)
        return tried[-1]

    def _accuracy(self, engine: OnnxEngine) -> Accuracy | None:
        """Retrieval by the exported model against that by the original."""
        found = search(self.loaded, engine_runner(engine), self.samples, f"embedding in {self.precision}")
        return compare_results(self.expected, found, self.samples)

    def _engine(self, layers: tuple[str, ...]) -> OnnxEngine:
        """The graphs of the folder, ready to run; `layers` are in float32 all the same."""
        write_exported(self.folder, self._card(layers))
        return OnnxEngine(self.folder, usable_threads())

    def _card(self, layers: tuple[str, ...]) -> ExportedCard:
        loaded, model = self.loaded, self.loaded.model
        proto = onnx.load(self.folder / self.graphs[loaded.modalities], load_external_data=False)
        names = [*self.graphs.values(), WEIGHTS_NAME]
        if loaded.adaptation is not None:
            names.append(write_adaptation(self.folder, loaded.adaptation))
        return ExportedCard(
            model=loaded.card,
            fingerprint=loaded.fingerprint,
            precision=self.precision,
            float_layers=layers,
            sizes=dict(model.sizes),
            similarities={kind: loaded.similarity(kind) for kind in model.sizes},
            stages=tuple(value.name for value in proto.graph.output if value.name not in model.sizes),
            camera_input=_takes_cameras(proto),
            graphs=self.graphs,
            files={name: file_digest(self.folder / name) for name in names},
            provenance=_provenance(loaded),
            adaptation=loaded.adaptation,
        )

    def _checked(self, engine: OnnxEngine, accuracy: Accuracy | None) -> ExportedCard:
        """Check the graphs of the folder, then write README and `model.json`; raises `ModelError`."""
        is_float = self.precision == "float32"
        agreements = check_agreement(self.loaded, engine_runner(engine), self.samples, ties=is_float)
        check = Check(self.samples.source, agreements, accuracy)
        faults = check.faults(self.precision, self.max_loss)
        if faults and not self.force:
            raise ModelError(
                f"{self.loaded.path}: the exported model fails its check: {'; '.join(faults)}. "
                "Nothing was written; --force writes it anyway"
            )
        values: Mapping[str, Any] = {**check.to_dict(), "max_loss": self.max_loss, "faults": faults}
        card = replace(engine.card, check=values)
        write_text(self.folder / README_NAME, readme(card))
        card = replace(card, files={**card.files, README_NAME: file_digest(self.folder / README_NAME)})
        write_exported(self.folder, card)
        return card


def _takes_cameras(proto: onnx.ModelProto) -> bool:
    return any(value.name == CAMERA for value in proto.graph.input)


def _provenance(loaded: TrainedModel) -> dict[str, str]:
    """Where an exported model comes from."""
    return {
        "model": f"{loaded.path.parent.name}/{loaded.path.name}",
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "slimreid": __version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
    }
