"""`model.json` of an exported model: all that is known of it but the graphs and weights. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError
from safetensors.numpy import load as safetensors_load
from safetensors.numpy import save as safetensors_save

from slimreid import __version__
from slimreid.errors import DataError, ModelError
from slimreid.files import atomic_write, new_folder, open_regular, write_text
from slimreid.inference.adaptation import Adaptation, adaptation_from
from slimreid.inference.model_card import (
    CARD_NAME,
    HEADER_KINDS,
    ModelCard,
    card_from_header,
    card_path,
    feature_fingerprint,
    is_exported,
)
from slimreid.inference.similarity import Similarity, Subset
from slimreid.json_files import Kinds, check_object, json_digest, parse_json, shown
from slimreid.modalities import all_subsets

README_NAME, ADAPTATION_NAME = "README.md", "adaptation.safetensors"
FORMAT = 1
MOST_BYTES = 256 * 2**20
"""A larger `model.json` is none."""

ExportPrecision = Literal["float32", "int8"]


@dataclass(frozen=True, eq=False)
class ExportedCard:
    """What `model.json` says of an exported model."""

    model: ModelCard
    """What the model file said: options, modalities, identities, cameras, training."""
    fingerprint: str
    """SHA-256 of the weights that were exported, as `LoadedModel.fingerprint`."""
    precision: ExportPrecision
    float_layers: tuple[str, ...]
    """With int8: linear layers that stayed float32, by the name of their weight."""
    sizes: Mapping[str, int]
    """Channels of each kind of feature, `both` last."""
    similarities: Mapping[str, Similarity]
    """How features of each kind are compared."""
    stages: tuple[str, ...]
    """Outputs of a graph that tell the kept patches, one (B, M, K) per stage of token reduction."""
    camera_input: bool
    """Whether a graph has the input `camera`, int64 (B,), −1 for a camera that is not known."""
    graphs: Mapping[Subset, str]
    """File of the graph of each subset of the modalities."""
    files: Mapping[str, str]
    """SHA-256 of every other file of the folder."""
    check: Mapping[str, Any] = field(default_factory=dict)
    """How the exported model compares with the one it came from."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where it came from: model file, versions, time."""
    adaptation: Adaptation | None = None
    """What it knows of the cameras of a site; its arrays are in a file of their own."""

    @property
    def modalities(self) -> Subset:
        """Modalities of the model, in order."""
        return self.model.modalities

    @property
    def feature_fingerprint(self) -> str:
        """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
        # float32 is what torch calls fp32: both give the same features, so these may be compared.
        name = "fp32" if self.precision == "float32" else self.precision
        precision = " ".join([name, *self.float_layers])
        return feature_fingerprint(self.model, self.fingerprint, precision, self.adaptation)


def write_exported(
    folder: Path, card: ExportedCard, name: str = CARD_NAME, *, indent: int | None = 1
) -> None:
    """Write `model.json`, with a checksum over itself, after all other files of the folder."""
    transforms, data = card.model.config.transforms, card.model.config.data
    content = {
        "format": FORMAT,
        "slimreid": __version__,
        "fingerprint": card.fingerprint,
        "feature_fingerprint": card.feature_fingerprint,
        "precision": card.precision,
        "float_layers": list(card.float_layers),
        "preprocessing": {
            "height": transforms.height,
            "width": transforms.width,
            "resize": transforms.test_resize,
            "antialias": True,
            "channels": "RGB",
            "mean": transforms.mean,
            "std": transforms.std,
            "windows": data.windows,
            "scaled_decode": data.scaled_decode,
        },
        "graphs": [{"modalities": subset, "file": file} for subset, file in card.graphs.items()],
        "camera_input": card.camera_input,
        "features": {
            kind: {"size": size, **card.similarities[kind].to_plain()} for kind, size in card.sizes.items()
        },
        "stages": card.stages,
        "check": card.check,
        "provenance": card.provenance,
        "adaptation": None if card.adaptation is None else card.adaptation.values,
        **asdict(card.model),
        "files": card.files,
    }
    plain = json.loads(json.dumps(content, allow_nan=False))
    plain["checksum"] = json_digest(plain)
    write_text(folder / name, json.dumps(plain, indent=indent, ensure_ascii=False) + "\n")


@contextmanager
def fresh_folder(out: Path, overwrite: bool) -> Iterator[Path]:
    """A folder that becomes `out` at the end; with `overwrite` in place of an exported model."""
    there = out.is_dir() and any(out.iterdir())
    if not there or not overwrite:
        with new_folder(out) as folder:
            yield folder
        return
    if not is_exported(out):
        raise DataError(
            f"{out} exists and is not an exported model; choose another folder or remove it first"
        )
    aside = out.absolute().with_name(f".{out.name}.replaced")
    beside = out.absolute().with_name(f".{out.name}.new")
    with new_folder(beside) as folder:
        yield folder
    out.absolute().rename(aside)
    beside.rename(out.absolute())
    shutil.rmtree(aside)


def write_adaptation(folder: Path, adaptation: Adaptation) -> str:
    """Write the arrays of an adaptation into the folder of an exported model; the name of the file."""
    with atomic_write(folder / ADAPTATION_NAME) as file:
        file.write(safetensors_save(adaptation.to_arrays()))
    return ADAPTATION_NAME


def read_exported(folder: Path | str) -> ExportedCard:
    """What the `model.json` of an exported model says; raises `ModelError` if it is not one or is damaged."""
    path = card_path(folder)
    try:
        with open_regular(path, MOST_BYTES) as file:
            values = check_object(parse_json(file.read()), {"format": int})
    except DataError as error:
        raise ModelError(f"{error}; give the folder that 'slimreid export' wrote") from None
    except (ValueError, OSError) as error:
        raise ModelError(f"{path}: not the card of an exported model ({error})") from None
    if values["format"] != FORMAT:
        newer = values["format"] > FORMAT
        advice = "newer; update SlimReID" if newer else "older; export it again"
        raise ModelError(f"{path}: written by SlimReID {shown(values.get('slimreid'))}, which is {advice}")
    if json_digest(values) != values.get("checksum"):
        raise ModelError(f"{path}: does not match its checksum; copy the folder again, or export it again")
    try:
        return _card(path, values)
    except (ValueError, KeyError, TypeError, DataError, SafetensorError, OSError) as error:
        raise ModelError(f"{path}: damaged ({error}); export the model again") from None


def _card(path: Path, values: dict[str, Any]) -> ExportedCard:
    """The card that checked values make; raises `ValueError` or `DataError` saying what is wrong."""
    check_object(values, _KINDS)
    model = card_from_header(path, values)
    features: dict[str, Any] = values["features"]
    card = ExportedCard(
        model=model,
        fingerprint=values["fingerprint"],
        precision=values["precision"],
        float_layers=tuple(values["float_layers"]),
        sizes={kind: int(each["size"]) for kind, each in features.items()},
        similarities={
            kind: Similarity.from_plain({**each, "modalities": model.modalities})
            for kind, each in features.items()
        },
        stages=tuple(values["stages"]),
        camera_input=values["camera_input"],
        graphs={tuple(each["modalities"]): str(each["file"]) for each in values["graphs"]},
        files=values["files"],
        check=values["check"],
        provenance=values["provenance"],
        adaptation=_read_adaptation(path.parent, values),
    )
    missing = [subset for subset in all_subsets(model.modalities) if subset not in card.graphs]
    if missing:
        raise ValueError(f"no graph for {', '.join(missing[0])}")
    strange = [name for name in (*card.graphs.values(), *card.files) if Path(name).name != name]
    if strange:
        raise ValueError(f"'{strange[0]}' is not the name of a file in the folder")
    return card


def _read_adaptation(folder: Path, values: Mapping[str, Any]) -> Adaptation | None:
    given = values.get("adaptation")
    if given is None:
        return None
    content = (folder / ADAPTATION_NAME).read_bytes()
    if hashlib.sha256(content).hexdigest() != values["files"][ADAPTATION_NAME]:
        raise ValueError(f"{ADAPTATION_NAME} is not as it was written")
    return adaptation_from(given, safetensors_load(content))


_KINDS: Kinds = {
    **HEADER_KINDS,
    "precision": str,
    "camera_input": bool,
    **dict.fromkeys(("float_layers", "stages", "graphs"), list),
    **dict.fromkeys(("features", "files", "check", "provenance"), dict),
}
"""What every `model.json` must hold."""
