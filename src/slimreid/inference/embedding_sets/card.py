"""`embeddings.json` of a folder of embeddings: what is true of all its rows, and of which work it is part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slimreid import __version__
from slimreid.data.manifest import Protocol
from slimreid.errors import DataError
from slimreid.files import open_regular, write_text
from slimreid.inference.similarity import Similarity
from slimreid.json_files import Kinds, check_object, json_digest, parse_json

SET_CARD_NAME = "embeddings.json"
"""A folder with this file is one of embeddings in Parquet."""
FORMAT = 3
_MOST_BYTES = 2**24
_FREE = ("model", "manifest", "slimreid")
"""What may differ between two calls that mean the same work: places, and the version."""


@dataclass(frozen=True, eq=False)
class SetCard:
    """What is true of all rows of a folder of embeddings."""

    manifest: str
    """Path of the table of images."""
    manifest_digest: str
    """SHA-256 of its content."""
    rows: int
    """How many rows the whole folder has, those that could not be read included."""
    model: str
    """Path of the model."""
    fingerprint: str
    """SHA-256 of the weights."""
    feature_fingerprint: str
    """SHA-256 over weights, precision and preprocessing: only features that agree in it are compared."""
    feature: str
    """Kind: original, slimmed, fused or both."""
    dimension: int
    modalities: tuple[str, ...]
    """What the model is shown, as far as each sample has it."""
    similarity: Similarity
    """How these features are compared."""
    cameras: bool
    """Whether cameras named as in training were taken to be the training cameras."""
    split: str
    """The split that was embedded; '' = all."""
    protocol: Protocol
    origin: str = ""
    """What the pixels are, if the manifest says so."""


def write_card(folder: Path, card: SetCard) -> None:
    """Write the card of a folder, with a checksum over itself."""
    values = _values(card)
    values["checksum"] = json_digest(values)
    write_text(folder / SET_CARD_NAME, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def read_card(folder: Path) -> SetCard:
    """The card of a folder of embeddings; raises `DataError` if there is none or it is damaged."""
    path = folder / SET_CARD_NAME
    try:
        with open_regular(path, _MOST_BYTES) as file:
            values = check_object(parse_json(file.read()), _KINDS)
        if values["format"] != FORMAT:
            raise ValueError(f"of format {values['format']}, this SlimReID reads {FORMAT}")
        if values["checksum"] != json_digest(values):
            raise ValueError("it does not match its checksum")
        return _card(values)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); make the embeddings again") from None


def check_same_work(folder: Path, before: SetCard, now: SetCard) -> None:
    """Raise `DataError` naming what differs from the work that a folder was begun with."""
    old, new = (_values(card) for card in (before, now))
    for name in old:
        if name not in _FREE and old[name] != new[name]:
            what = name if name == "similarity" else f"{name} {old[name]!r}, not {new[name]!r}"
            raise DataError(
                f"{folder}: holds embeddings of other work ({what}); choose another --out, or give what it "
                "was begun with"
            )


def _values(card: SetCard) -> dict[str, Any]:
    plain = {"format": FORMAT, "slimreid": __version__, **asdict(card)}
    found: dict[str, Any] = json.loads(json.dumps(plain | {"similarity": card.similarity.to_plain()}))
    return found


def _card(values: Mapping[str, Any]) -> SetCard:
    similarity = Similarity.from_plain(values["similarity"])
    plain = {name: values[name] for name in SetCard.__dataclass_fields__}
    return SetCard(**{**plain, "modalities": tuple(plain["modalities"]), "similarity": similarity})


_TEXTS = ("manifest", "manifest_digest", "model", "fingerprint", "feature_fingerprint", "feature", "split")
_KINDS: Kinds = {
    **dict.fromkeys((*_TEXTS, "protocol", "origin", "checksum"), str),
    **dict.fromkeys(("format", "rows", "dimension"), int),
    "modalities": list,
    "similarity": dict,
    "cameras": bool,
}
