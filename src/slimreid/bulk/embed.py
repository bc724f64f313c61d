"""A folder of embeddings from a manifest of any length: `slimreid.embed_dataset`."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq  # type: ignore[import-untyped]

from slimreid.bulk.embedder import Embedding, RowEmbedder
from slimreid.bulk.manifest import LongManifest, stage_rows
from slimreid.bulk.pool import Pool
from slimreid.bulk.summary import Summary, check_complete, mend, read_summary, write_summary
from slimreid.bulk.watch import Watch, watched
from slimreid.config.model import BOTH
from slimreid.data.manifest import Split
from slimreid.errors import ConfigError, DataError
from slimreid.extras import explain_missing
from slimreid.files import file_digest
from slimreid.inference.embedding_sets.card import (
    SET_CARD_NAME,
    SetCard,
    check_same_work,
    read_card,
    write_card,
)
from slimreid.inference.embedding_sets.tables import ROWS_FOLDER, parquet_files, write_table
from slimreid.inference.features.data import Cameras, is_manifest_of
from slimreid.inference.load import load, resolve_model
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.model_card import CARD_NAME, is_exported
from slimreid.inference.similarity import check_kind
from slimreid.modalities import parse_subset

Engine = Literal["local", "ray"]
IMAGES_FOLDER, CHECKPOINT_FOLDER = ".images", ".checkpoint"
_LEAST_PART, _MOST_PART, _PARTS = 64, 4096, 40
"""Rows of a Parquet file: so many that there are about 40 files, within bounds. A crash loses what the files
in work would have held, and each costs a second or so of overhead."""


@dataclass(frozen=True)
class EmbedChoices:
    """What is computed of each row."""

    feature: str = BOTH
    modalities: str | None = None
    """Use only these, e.g. rgb,nir or rn; None = all that model and manifest have."""
    split: Split | None = None
    """Rows of this split only."""
    cameras: Cameras = "auto"
    batch: int | None = None
    """Samples embedded at once; None = as in training."""
    device: str | None = None
    """cpu or cuda for a model that torch runs; None = an exported model."""
    threads: int | None = None
    """CPU threads of an exported model; None = all that there are, with Ray one per CPU of an actor."""


def embed_dataset(
    manifest: Path | str,
    model: Path | str,
    out: Path | str,
    *,
    engine: Engine = "local",
    choices: EmbedChoices | None = None,
    pool: Pool | None = None,
    show_progress: bool | None = None,
) -> Summary:
    """Embed all rows of a manifest, CSV or Parquet, into a folder of Parquet files.

    After a crash, the same call goes on: at its end every row is there exactly once.

    Args:
        manifest: The table of images; paths may be addresses (s3://, gs://, https://).
        model: Folder of an exported model, or the name of a built-in model. With `choices.device` also a run
            or a model file.
        out: Folder to write. On several machines it must be on a disk that they share, as must the model.
        engine: `local` = this process; `ray` = Ray Data, on this machine or a cluster.
        choices: What is computed.
        pool: With `ray`: where, and how many actors.
        show_progress: Default: a bar in a terminal, else a line now and then.

    Raises:
        DataError: The manifest cannot be read, or the folder holds other work.
        ConfigError: An option does not fit, or the pool cannot be placed.
        ModelError: The model cannot be loaded.
        MissingExtraError: Ray is not installed.
    """
    choices, pool, out = choices or EmbedChoices(), pool or Pool(), Path(out).absolute()
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine '{engine}' is neither local nor ray")
    loaded = _load(model, choices, engine)
    table = LongManifest.open(Path(manifest), loaded.modalities)
    embedding = _embedding(loaded, table, choices)
    images, rows = out / IMAGES_FOLDER, out / ROWS_FOLDER
    card = _begin(out, loaded, table, embedding, choices.split or "")
    done = read_summary(out)
    if done is not None:
        return done
    started, watch = time.monotonic(), Watch(rows, card.rows)
    with watched(watch, show_progress):
        if engine == "local":
            _embed_locally(images, rows, embedding, loaded)
        else:
            with explain_missing():
                from slimreid.bulk.ray_engine import embed_with_ray
            embed_with_ray(images, rows, out / CHECKPOINT_FOLDER, embedding, pool)
    if engine == "ray":
        mend(rows, card.rows)
    statuses = check_complete(parquet_files(rows), card.rows)
    summary = Summary(
        card.rows, dict(statuses), time.monotonic() - started, card.rows - watch.before, engine, str(out)
    )
    write_summary(out, summary)
    for left in (images, out / CHECKPOINT_FOLDER):
        shutil.rmtree(left, ignore_errors=True)
    return summary


def _load(model: Path | str, choices: EmbedChoices, engine: Engine) -> LoadedModel:
    """The model; with Ray one that torch runs only where a device asks for it."""
    model = resolve_model(model)
    if engine == "ray" and choices.device is None and not is_exported(model):
        raise ConfigError(
            f"{model}: not an exported model; make one with 'slimreid export', or let torch run this one with"
            " --device cpu or --device cuda"
        )
    device = None if is_exported(model) else choices.device
    return load(model.resolve(), device, None if engine == "ray" else choices.threads)


def _embedding(loaded: LoadedModel, table: LongManifest, choices: EmbedChoices) -> Embedding:
    check_kind(choices.feature, tuple(loaded.sizes))
    known = table.columns.modalities
    wanted = parse_subset(choices.modalities, loaded.modalities) if choices.modalities else known
    absent = [name for name in wanted if name not in known]
    if absent:
        raise ConfigError(f"modality '{absent[0]}'; the data has {', '.join(known)} of the model's")
    trained_on = loaded.config.data.manifest
    own = bool(trained_on) and is_manifest_of(Path(trained_on), table.path)
    adapted = loaded.adaptation is not None
    size = loaded.config.batch.test if choices.batch is None else choices.batch
    if size < 1:
        raise ConfigError(f"batch must be at least 1, not {size}")
    path = loaded.path.parent if loaded.path.name == CARD_NAME else loaded.path
    return Embedding(
        model=str(path),
        feature=choices.feature,
        modalities=tuple(name for name in known if name in wanted),
        # An adapted model knows its site's cameras by name, whatever the data.
        cameras=choices.cameras == "same" or (choices.cameras == "auto" and (own or adapted)),
        batch=size,
        device=None if is_exported(path) else choices.device or "cpu",
        threads=choices.threads,
    )


def _embed_locally(images: Path, rows: Path, embedding: Embedding, loaded: LoadedModel) -> None:
    """Embed every file of rows of images into one of the same name; one that is there is not made again."""
    embedder = RowEmbedder(embedding, loaded)
    for path in parquet_files(images):
        target = rows / path.name
        if not target.exists():
            write_table(target, embedder(pq.read_table(path)))


def _begin(out: Path, loaded: LoadedModel, table: LongManifest, embedding: Embedding, split: str) -> SetCard:
    """Lay out the folder, or find that it holds the beginning of this very work."""
    card = SetCard(
        manifest=str(table.path.resolve()),
        manifest_digest=file_digest(table.path),
        rows=0,
        model=embedding.model,
        fingerprint=loaded.fingerprint,
        feature_fingerprint=loaded.feature_fingerprint,
        feature=embedding.feature,
        dimension=loaded.sizes[embedding.feature],
        modalities=embedding.modalities,
        similarity=loaded.similarity(embedding.feature),
        cameras=embedding.cameras,
        split=split,
        protocol=table.protocol,
        origin=table.origin,
    )
    if (out / SET_CARD_NAME).is_file():
        before = read_card(out)
        check_same_work(out, before, replace(card, rows=before.rows))
        return before
    inside = [path.name for path in out.iterdir()] if out.is_dir() else []
    if (out.exists() and not out.is_dir()) or set(inside) - {IMAGES_FOLDER}:
        raise DataError(f"{out} exists and is not a folder of embeddings; choose another --out, or remove it")
    rows = sum(1 for _ in table.samples(split))
    stage_rows(table, out / IMAGES_FOLDER, split, max(_LEAST_PART, min(_MOST_PART, rows // _PARTS)))
    (out / ROWS_FOLDER).mkdir(exist_ok=True)
    card = replace(card, rows=rows)
    write_card(out, card)  # last: its presence says that the rows of images are all there
    return card
