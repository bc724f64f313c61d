"""Options of `slimreid gallery ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slimreid.cli.options import (
    NOTE,
    REQUIRED,
    STANDS_FOR,
    DeviceOption,
    Feature,
    JsonOption,
    ModelOption,
    Split,
)
from slimreid.cli.options.images import PICTURES
from slimreid.config.model import DEFAULT_MODEL
from slimreid.config.values import check_least
from slimreid.errors import ConfigError

OF_GALLERY = "Default: the one the gallery was made with."


@dataclass(frozen=True, kw_only=True)
class GalleryOptions:
    """Options of all gallery commands."""

    gallery: str
    """File of the gallery, or milvus://host:port/NAME."""
    by: str | None = None
    """Who does this, for the log; default: the user's name."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(GalleryOptions, ModelOption, DeviceOption):
    """Commands that embed images."""

    model: Path | None = field(default=None, metadata={NOTE: OF_GALLERY})


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Commands that also work with a service."""

    server: str | None = field(default=None, metadata={STANDS_FOR: "gallery"})
    """In place of GALLERY: address of a service, http://HOST:PORT ('slimreid serve'); its token comes from
    the variable SLIMREID_TOKEN."""


@dataclass(frozen=True, kw_only=True)
class RowOptions(GalleryOptions):
    """Commands that can be restricted to some rows."""

    identity: list[str] = field(default_factory=list)
    """Only rows of these identities; '' = rows without identity."""
    id: list[int] = field(default_factory=list)
    """Only rows with these numbers."""
    group: list[str] = field(default_factory=list)
    """Only rows of these tracklets."""
    camera: list[str] = field(default_factory=list)
    """Only rows from these cameras."""
    since: str | None = None
    """Only rows from this time on, e.g. 2026-03-01T14:30:00 (UTC)."""
    until: str | None = None
    """Only rows before this time."""
    modalities: str | None = None
    """Only rows that have at least these modalities, e.g. rgb,tir or rt."""


@dataclass(frozen=True, kw_only=True)
class CreateOptions(GalleryOptions, ModelOption):
    """Make an empty gallery for the features of a model."""

    model: Path = Path(DEFAULT_MODEL)
    feature: Feature = "both"
    """Feature to hold: one branch of the model, or both together."""


@dataclass(frozen=True, kw_only=True)
class EnrolOptions(EmbeddingOptions, ServerOptions):
    """Enrol a manifest, a folder per identity, or image files."""

    sources: list[str]
    """A manifest, a folder with one folder per identity, or image files."""
    identity: str | None = None
    """Who or what all these images show."""
    group: str | None = None
    """Tracklet that all these images belong to."""
    camera: str | None = None
    """Camera that took all these images."""
    time: str | None = None
    """When all these images were taken, e.g. 2026-03-01T14:30:00 (UTC)."""
    modality: str | None = None
    """Modality of images whose path names none; default: rgb."""
    split: Split | None = None
    """Use the rows of this split of a manifest only."""
    skip_broken: bool = False
    """Leave out samples whose files cannot be read, instead of stopping."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions(EmbeddingOptions, RowOptions, ServerOptions, JsonOption):
    """Commands that ask a gallery about images."""

    images: list[str]
    """Image files. Files whose names differ only in the modality (a_rgb.png a_tir.png) are one sample, as are
    all files given as MODALITY=FILE (tir=a.png)."""
    query_camera: str = ""
    """Camera that took the query images, for a model adapted to a site ('slimreid adapt')."""
    together: bool = False
    """The images show one object: pool them, by quality, into one query."""
    modality: str | None = None
    """Modality of images whose path names none; default: rgb."""


@dataclass(frozen=True, kw_only=True)
class GallerySearchOptions(QueryOptions):
    """Find the rows or identities most similar to given images."""

    top: int = 10
    """Number of results per query."""
    identities: bool = False
    """List identities, each with its best row, instead of rows."""
    picture: Path | None = None
    """Also draw queries and results: .png or .jpg."""
    patches: bool = False
    """In the picture, darken the patches that the model dropped."""

    def __post_init__(self) -> None:
        check_least(self, 1, "top")
        if self.picture is not None and self.picture.suffix.lower() not in PICTURES[:3]:
            raise ConfigError(f"--picture {self.picture}: end its name in {', '.join(PICTURES[:3])}")
        if self.patches and self.picture is None:
            raise ConfigError("--patches needs --picture")


@dataclass(frozen=True, kw_only=True)
class IdentifyOptions(QueryOptions):
    """Identify the people or vehicles in images: a name, unsure, or unknown."""

    rate: float = 0.01
    """Accepted false positive identification rate (FPIR): 0.01, 0.003 or 0.001."""


@dataclass(frozen=True, kw_only=True)
class GalleryListOptions(GalleryOptions, JsonOption):
    """List the identities."""


@dataclass(frozen=True, kw_only=True)
class RowsOptions(RowOptions, JsonOption):
    """Show rows."""


@dataclass(frozen=True, kw_only=True)
class GalleryCheckOptions(RowOptions, JsonOption):
    """Check the gallery and list suspicious rows (exit code 1 if any)."""


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(RowOptions):
    """Remove rows, or erase them for good."""

    forget: bool = False
    """Erase the rows for good, from the log too; this cannot be undone."""


@dataclass(frozen=True, kw_only=True)
class RenameOptions(GalleryOptions):
    """Give an identity another name."""

    old: str
    """Name of the identity."""
    new: str
    """Its new name."""


@dataclass(frozen=True, kw_only=True)
class MergeOptions(GalleryOptions):
    """Make several identities one."""

    identities: list[str]
    """Identities that are one."""
    into: str = field(metadata=REQUIRED)
    """Name that all of them get."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions(GalleryOptions):
    """Make rows of an identity an identity of their own."""

    rows: list[int]
    """Rows of one identity that are somebody else."""
    into: str = field(metadata=REQUIRED)
    """Name of the new identity."""


@dataclass(frozen=True, kw_only=True)
class AssignOptions(GalleryOptions):
    """Give rows the identities of a table."""

    table: Path
    """CSV with the columns row and identity, as 'gallery cluster' writes it."""


@dataclass(frozen=True, kw_only=True)
class UndoOptions(GalleryOptions):
    """Undo the last changes."""

    steps: int = 1
    """Changes to undo, the last one first."""


@dataclass(frozen=True, kw_only=True)
class LogOptions(GalleryOptions, JsonOption):
    """Show who changed and searched what."""

    limit: int = 20
    """Entries to show, the last one first; 0 = all."""

    def __post_init__(self) -> None:
        check_least(self, 0, "limit")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(EmbeddingOptions, JsonOption):
    """Find thresholds for a given rate of false positives."""

    data: Path | None = None
    """Manifest or folder with samples of known identity to search for; default: the rows of the gallery."""
    split: Split | None = None
    """Use the rows of this split of a manifest only."""
    rates: tuple[float, ...] = (0.01, 0.003, 0.001)
    """Accepted false positive identification rates (FPIR)."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(RowOptions):
    """Propose identities for rows that have none."""

    out: Path = Path("clusters.csv")
    """Table to write, for 'gallery assign'."""
    picture: Path | None = None
    """Also draw the proposed identities: .html, .png or .jpg."""
    rate: float = 0.01
    """Cluster at the calibrated threshold of this false positive identification rate (FPIR)."""
    threshold: float | None = None
    """Cluster at this score instead of a calibrated threshold."""
    overwrite: bool = False
    """Replace a table that exists."""

    def __post_init__(self) -> None:
        if self.picture is not None and self.picture.suffix.lower() not in PICTURES:
            raise ConfigError(f"--picture {self.picture}: end its name in {', '.join(PICTURES)}")


@dataclass(frozen=True, kw_only=True)
class GalleryExportOptions(RowOptions):
    """Export rows and features to a Parquet file."""

    out: Path
    """Parquet file to write."""
    overwrite: bool = False
    """Replace a file that exists."""


@dataclass(frozen=True, kw_only=True)
class GalleryImportOptions(GalleryOptions):
    """Import rows from Parquet files."""

    files: list[Path]
    """Parquet files written by 'gallery export', or folders written by 'embed'. A gallery that does not exist
    is created."""
    bucket: str | None = None
    """With Milvus: the cluster's own bucket, s3://BUCKET/FOLDER, to send the rows through."""


@dataclass(frozen=True, kw_only=True)
class CopyOptions(GalleryOptions):
    """Copy to another file or server, checked row by row."""

    target: str
    """A file or milvus://host:port/NAME; created if it does not exist."""


@dataclass(frozen=True, kw_only=True)
class ReembedOptions(GalleryOptions, ModelOption, DeviceOption):
    """Recompute all features with another model."""

    model: Path = field(metadata=REQUIRED)
    feature: Feature | None = None
    """Feature to hold; default: the one it holds now."""
    drop_missing: bool = False
    """Remove rows whose image files are gone or have changed, instead of stopping."""
