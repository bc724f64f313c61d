"""Options of `slimreid gallery ...`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slimreid.cli.options import REQUIRED, STANDS_FOR, Feature, Split
from slimreid.cli.options.images import PICTURES
from slimreid.config.model import DEFAULT_MODEL
from slimreid.config.values import check_least
from slimreid.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GalleryOptions:
    """What all commands have."""

    gallery: str
    """File of the gallery, or milvus://host:port/NAME."""
    by: str | None = None
    """Who does this, for the log; default: the user's name."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions(GalleryOptions):
    """Commands that embed images."""

    model: Path | None = None
    """Run, model file, exported folder or name of a model; default: the one the gallery was made with."""
    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one."""


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Commands that work on a service, too."""

    server: str | None = field(default=None, metadata={STANDS_FOR: "gallery"})
    """In place of GALLERY: address of a service, http://HOST:PORT ('slimreid serve'); its token comes from
    the variable SLIMREID_TOKEN."""


@dataclass(frozen=True, kw_only=True)
class RowOptions(GalleryOptions):
    """Commands that can be restricted to some rows."""

    identity: list[str] = field(default_factory=list)
    """Only rows of these identities; '' = of none."""
    id: list[int] = field(default_factory=list)
    """Only these rows."""
    group: list[str] = field(default_factory=list)
    """Only rows of these tracklets."""
    camera: list[str] = field(default_factory=list)
    """Only rows from these cameras."""
    since: str | None = None
    """Only rows of this time (2026-03-01T14:30:00, UTC) or later."""
    until: str | None = None
    """Only rows before this time."""
    modalities: str | None = None
    """Only rows that were seen at least in these modalities, e.g. rgb,tir or rt."""


@dataclass(frozen=True, kw_only=True)
class CreateOptions(GalleryOptions):
    """Make an empty gallery for the features of a model."""

    model: Path = Path(DEFAULT_MODEL)
    """Run, model file, exported folder or name of a model that ships, whose features the gallery holds."""
    feature: Feature = "both"
    """Feature to hold: one branch of the model, or both together."""


@dataclass(frozen=True, kw_only=True)
class EnrolOptions(ModelOptions, ServerOptions):
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
    """Modality of images whose path does not name one; default: rgb."""
    split: Split | None = None
    """Of a manifest, the rows of this split only."""
    skip_broken: bool = False
    """Leave out samples whose files cannot be read, instead of stopping."""


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ModelOptions, RowOptions, ServerOptions):
    """Commands that ask a gallery about images."""

    images: list[str]
    """Image files. Names that differ only in the modality (a_rgb.png a_tir.png) are one sample, as are all
    files written tir=FILE."""
    query_camera: str = ""
    """Camera that took the images, for a model that was adapted to a site ('slimreid adapt')."""
    together: bool = False
    """The images show one object: pool them, by quality, into one query."""
    modality: str | None = None
    """Modality of images whose path does not name one; default: rgb."""
    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True, kw_only=True)
class GallerySearchOptions(QueryOptions):
    """Find the rows or identities most similar to given images."""

    top: int = 10
    """Number of answers per query."""
    identities: bool = False
    """Answer with identities, each by its best row, instead of rows."""
    picture: Path | None = None
    """Also draw queries and answers: .png or .jpg."""
    patches: bool = False
    """In the picture, darken the patches that the model dropped."""

    def __post_init__(self) -> None:
        check_least(self, 1, "top")
        if self.picture is not None and self.picture.suffix.lower() not in PICTURES[:3]:
            raise ConfigError(f"--picture {self.picture}: end its name in {', '.join(PICTURES[:3])}")
        if self.patches and self.picture is None:
            raise ConfigError("--patches goes with --picture")


@dataclass(frozen=True, kw_only=True)
class IdentifyOptions(QueryOptions):
    """Say who images show: a name, not sure, or unknown."""

    rate: float = 0.01
    """Share of searches for strangers that may be answered with a name (FPIR): 0.01, 0.003 or 0.001."""


@dataclass(frozen=True, kw_only=True)
class GalleryListOptions(GalleryOptions):
    """List the identities."""

    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True, kw_only=True)
class RowsOptions(RowOptions):
    """Show rows."""

    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True, kw_only=True)
class GalleryCheckOptions(RowOptions):
    """Check the store; list rows to look at (exit code 1 if any)."""

    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(RowOptions):
    """Take rows out, or erase them for good."""

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
class LogOptions(GalleryOptions):
    """Show who changed and searched what."""

    limit: int = 20
    """Entries to show, the last one first; 0 = all."""
    json: bool = False
    """Print everything as JSON."""

    def __post_init__(self) -> None:
        check_least(self, 0, "limit")


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(ModelOptions):
    """Find thresholds with a known rate of false positives."""

    data: Path | None = None
    """Manifest or folder with samples of known identity to search for; default: the rows of the gallery."""
    split: Split | None = None
    """Of a manifest, the rows of this split only."""
    rates: tuple[float, ...] = (0.01, 0.003, 0.001)
    """Shares of searches for strangers that may be answered with a name (FPIR)."""
    json: bool = False
    """Print everything as JSON."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(RowOptions):
    """Propose identities for rows that have none."""

    out: Path = Path("clusters.csv")
    """Table to write, for 'gallery assign'."""
    page: Path | None = None
    """Also draw the proposals: .html, .png or .jpg."""
    rate: float = 0.01
    """Rows are alike at the calibrated threshold of this rate (FPIR)."""
    threshold: float | None = None
    """Rows are alike at this score, in place of a calibrated one."""
    overwrite: bool = False
    """Replace a table that exists."""

    def __post_init__(self) -> None:
        if self.page is not None and self.page.suffix.lower() not in PICTURES:
            raise ConfigError(f"--page {self.page}: end its name in {', '.join(PICTURES)}")


@dataclass(frozen=True, kw_only=True)
class GalleryExportOptions(RowOptions):
    """Write everything into a Parquet file."""

    out: Path
    """Parquet file to write."""
    overwrite: bool = False
    """Replace a file that exists."""


@dataclass(frozen=True, kw_only=True)
class GalleryImportOptions(GalleryOptions):
    """Take in the rows of Parquet files."""

    files: list[Path]
    """Parquet files that 'gallery export' wrote, or folders that 'embed' wrote; the gallery is made if it is
    not there."""
    bucket: str | None = None
    """With Milvus: the bucket that the cluster itself uses, s3://BUCKET/FOLDER; rows then go by it."""


@dataclass(frozen=True, kw_only=True)
class CopyOptions(GalleryOptions):
    """Copy into another file or server, checked row by row."""

    target: str
    """Where to: a file or milvus://host:port/NAME; made if it is not there."""


@dataclass(frozen=True, kw_only=True)
class ReembedOptions(GalleryOptions):
    """Compute all features anew with another model."""

    model: Path = field(metadata=REQUIRED)
    """Run, model file, exported folder or name of a model to compute all features with."""
    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one."""
    feature: Feature | None = None
    """Feature to hold; default: the kind it holds now."""
    drop_missing: bool = False
    """Remove rows whose files are gone or have changed, instead of stopping."""
