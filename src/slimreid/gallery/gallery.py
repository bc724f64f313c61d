"""A gallery in a program's hands: the same words as `slimreid gallery ...`."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from slimreid.config.model import DEFAULT_MODEL
from slimreid.gallery import editing
from slimreid.gallery.answers import Answer, search_gallery
from slimreid.gallery.clusters import Proposal, propose
from slimreid.gallery.concerns import Concern, find_concerns
from slimreid.gallery.decisions.calibration import RATES, Calibration
from slimreid.gallery.embedder import Embedder, check_model, describe_model
from slimreid.gallery.enrolment.enrol import Enrolled, enrol_source
from slimreid.gallery.enrolment.sources import Labels, Source, open_source
from slimreid.gallery.errors import GalleryDamagedError
from slimreid.gallery.exchange.transfer import Transferred, copy_store
from slimreid.gallery.identification import (
    Identification,
    Probes,
    calibrate_store,
    decide,
    rows_as_probes,
    samples_as_probes,
)
from slimreid.gallery.queries import Query, embed_query, feature_query
from slimreid.gallery.reembedding import Reembedded, reembed
from slimreid.gallery.store.contract import EVERYTHING, Store
from slimreid.gallery.store.open import create_store, open_or_create, open_store
from slimreid.gallery.store.rows import Filter, LogEntry, ModelInfo, Row
from slimreid.inference.load import load

UNKNOWN = Filter(identities=[""])


class Gallery:
    """People or vehicles that are known: enrol them, search for new samples, keep the gallery clean.

    Every change and every search is in its log with the name of who did it. Changes are on disk when a method
    returns, and can be undone. Use it in a `with` block, or close it.
    """

    def __init__(
        self, place: Path | str | Store, model: Embedder | Path | str | None = None, *, by: str | None = None
    ) -> None:
        """Open a gallery.

        Args:
            place: Its file, `milvus://host:port/NAME`, or a store that is open already.
            model: As `slimreid.load` gives it, or its path; needed to enrol or search for images. None = the
                one it was made with, where that still is.
            by: Who works with it, for the log; None = the user of this process.

        Raises:
            GalleryError: Where there is none, or it is damaged.
        """
        self.store = open_store(place) if isinstance(place, (str, Path)) else place
        self.by = by or getpass.getuser()
        self._model = model

    @classmethod
    def create(
        cls,
        place: Path | str,
        model: Embedder | Path | str = DEFAULT_MODEL,
        *,
        feature: str = "both",
        by: str | None = None,
    ) -> Gallery:
        """Make an empty gallery for one kind of feature of a model; raises `DataError` where it exists."""
        loaded = load(model) if isinstance(model, (str, Path)) else model
        return cls(create_store(place, describe_model(loaded, feature)), loaded, by=by)

    @classmethod
    def for_import(
        cls,
        place: Path | str,
        paths: Sequence[Path | str],
        *,
        by: str | None = None,
        bucket: str | None = None,
    ) -> Gallery:
        """Open a gallery, or make one for the model of the first file or folder where there is none.

        `bucket`: the one that a Milvus cluster itself uses, s3://BUCKET/FOLDER; rows then go by it.
        """
        from slimreid.gallery.exchange.parquet import open_importable

        return cls(open_or_create(place, open_importable(Path(paths[0])).model, bucket), by=by)

    def __enter__(self) -> Gallery:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of files and connections."""
        self.store.close()

    def __len__(self) -> int:
        return self.store.count()

    @property
    def info(self) -> ModelInfo:
        """The model that made its features."""
        return self.store.model

    @property
    def model(self) -> Embedder:
        """The model, loaded; raises `OtherModelError` for one that does not fit, `ModelError` for none."""
        if self._model is None or isinstance(self._model, (str, Path)):
            self._model = load(self._model or self.info.path or DEFAULT_MODEL)
        check_model(self._model, self.info, self.store.place)
        return self._model

    def use(self, model: Embedder) -> None:
        """Take another object for the model, such as one on a GPU; raises `OtherModelError` for another."""
        check_model(model, self.info, self.store.place)
        self._model = model

    def enrol(
        self,
        source: Source | Path | str | Sequence[str | Path],
        *,
        labels: Labels | None = None,
        identity: str | None = None,
        skip_broken: bool = False,
        show_progress: bool | None = None,
    ) -> Enrolled:
        """Enrol samples that are not in the gallery yet; what became of them.

        Args:
            source: A manifest, a folder with one folder per identity, or a list of image files.
            labels: What is said of samples that do not say it themselves.
            identity: Short for `labels=Labels(identity=...)`.
            skip_broken: Leave out samples that cannot be read.
            show_progress: Force the progress bar on or off.

        Raises:
            DataError: For a source or a file that cannot be read.
            GalleryError: Where the gallery cannot take them.
        """
        model = self.model
        if identity is not None:
            labels = replace(labels or Labels(), identity=identity)
        origin = str(source) if isinstance(source, (str, Path)) else ""
        if not isinstance(source, Source):
            source = open_source(model, Path(source) if isinstance(source, str) else source, labels)
        return enrol_source(
            self.store,
            model,
            source,
            self.by,
            origin=origin,
            skip_broken=skip_broken,
            show_progress=show_progress,
        )

    def query(
        self, images: Any, *, names: Sequence[str] | None = None, pooled: bool = False, camera: str = ""
    ) -> Query:
        """Samples to search for, as `model.embed` takes them.

        `pooled`: they show one object and become one query, pooled by quality. `camera`: which took them, for
        a model that was adapted to a site.
        """
        return embed_query(self.model, self.info, images, names=names, pooled=pooled, camera=camera)

    def query_features(self, features: Any, present: Any = None) -> Query:
        """Features (n, D) of this gallery's model to search for; `present` (n, M), None = all modalities."""
        return feature_query(self.info, np.asarray(features, dtype=np.float32), present)

    def search(
        self,
        query: Query | Any,
        *,
        k: int = 10,
        identities: bool = False,
        which: Filter = EVERYTHING,
        pooled: bool = False,
    ) -> list[Answer]:
        """The k best rows for each query, or with `identities` the best row of each of the k best identities.

        Args:
            query: From `query` or `query_features`, or images as `model.embed` takes them.
            k: Answers per query.
            identities: Whether each identity is one answer.
            which: Rows to search in.
            pooled: Whether images show one object and become one query.
        """
        asked = query if isinstance(query, Query) else self.query(query, pooled=pooled)
        return search_gallery(self.store, asked, k, which, self.by, identities=identities)

    def identify(
        self, query: Query | Any, *, rate: float = RATES[0], which: Filter = EVERYTHING, pooled: bool = False
    ) -> Sequence[Identification]:
        """Who each query is: known, unsure, unknown, or undecided where the gallery is not calibrated.

        `rate`: share of searches for strangers that may return anybody (FPIR). Others as in `search`.
        """
        asked = query if isinstance(query, Query) else self.query(query, pooled=pooled)
        return decide(self.store, asked, rate, which, self.by)

    def calibrate(
        self,
        probes: Probes | None = None,
        *,
        rates: Sequence[float] = RATES,
        show_progress: bool | None = None,
    ) -> Calibration:
        """Find the thresholds for some rates of false positives, and keep them.

        `probes`: samples of known identity to search for; None = the rows of the gallery, each of them as a
        search among the others, without identities that the model was trained on.
        """
        if probes is None:
            probes = rows_as_probes(self.store, getattr(self.model, "identities", ()))
        return calibrate_store(self.store, probes, self.by, rates=rates, show_progress=show_progress)

    def probes(self, source: Source) -> Probes:
        """Samples of known identity to calibrate with."""
        return samples_as_probes(self.store, self.model, source)

    def check(self, which: Filter = EVERYTHING, show_progress: bool | None = None) -> Sequence[Concern]:
        """Rows that should be looked at; raises `GalleryDamagedError` where the store is not whole."""
        if faults := self.store.check():
            raise GalleryDamagedError(f"{self.store.place}: {faults[0]} ({len(faults)} faults)")
        return find_concerns(self.store, which, show_progress)

    def cluster(
        self, which: Filter = UNKNOWN, *, rate: float = RATES[0], threshold: float | None = None
    ) -> Proposal:
        """Propose identities, by default for rows that have none; `assign` takes the proposal."""
        return propose(self.store, which, rate, threshold)

    def export(self, path: Path | str, which: Filter = EVERYTHING, *, overwrite: bool = False) -> int:
        """Write rows into a Parquet file; how many."""
        from slimreid.gallery.exchange.parquet import write_parquet

        count = write_parquet(self.store, Path(path), which, overwrite)
        self.store.note("export", self.by, count, {"to": str(path)})
        return count

    def import_(self, paths: Sequence[Path | str], *, show_progress: bool | None = None) -> Transferred:
        """Take in rows that are not there yet: exported galleries, and folders of `slimreid.embed_dataset`.

        They go by in pieces, however many they are; at the end each is looked for. Raises `DataError`,
        `OtherModelError` and `GalleryError`.
        """
        from slimreid.gallery.exchange.parquet import import_rows, open_importable

        sources = [open_importable(Path(path)) for path in paths]
        return import_rows(self.store, sources, self.by, show_progress=show_progress)

    def copy(self, place: Path | str) -> Transferred:
        """Copy everything but the log into another gallery, made if it is not there, and compare both."""
        with closing(open_or_create(place, self.info)) as target:
            return copy_store(self.store, target, self.by)

    def reembed(
        self,
        model: Embedder | Path | str,
        *,
        feature: str | None = None,
        drop_missing: bool = False,
        show_progress: bool | None = None,
    ) -> Reembedded:
        """Compute all features anew with another model and use these from then on."""
        loaded = load(model) if isinstance(model, (str, Path)) else model
        done = reembed(
            self.store,
            loaded,
            self.by,
            feature=feature,
            drop_missing=drop_missing,
            show_progress=show_progress,
        )
        self._model = loaded
        return done

    def list(self) -> dict[str, int]:
        """Identity -> its rows, '' for rows without identity, by name."""
        return self.store.identities()

    def show(self, which: Filter) -> Sequence[Row]:
        """The rows that are meant; raises `GalleryError` for what is not there."""
        return editing.find_rows(self.store, which)

    def remove(self, which: Filter, *, forget: bool = False) -> int:
        """Take rows out of the gallery, which can be undone; with `forget` erase them for good.

        Returns the entry of the log.
        """
        return (editing.forget if forget else editing.remove)(self.store, which, self.by)

    def rename(self, old: str, new: str) -> int:
        """Give an identity another name; the entry of the log."""
        return editing.rename(self.store, old, new, self.by)

    def merge(self, identities: Sequence[str], into: str) -> int:
        """Make several identities one with the name `into`; the entry of the log."""
        return editing.merge(self.store, identities, into, self.by)

    def split(self, ids: Sequence[int], new: str) -> int:
        """Make some rows of an identity a new one; the entry of the log."""
        return editing.split(self.store, ids, new, self.by)

    def assign(self, identities: Mapping[int, str]) -> int:
        """Give rows identities: {row: name}; the entry of the log."""
        return editing.assign(self.store, identities, self.by)

    def undo(self, steps: int = 1) -> Sequence[LogEntry]:
        """Undo the last changes, also those of others and of earlier days; the entries that were undone."""
        return editing.undo(self.store, steps, self.by)

    def log(self, limit: int | None = None) -> Sequence[LogEntry]:
        """Changes and searches, newest first."""
        return self.store.log(limit)
