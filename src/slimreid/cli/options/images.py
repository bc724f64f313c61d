"""Options of the commands that look at images with a trained model: `embed`, `search`, `show`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import REQUIRED, Cameras, Feature, Split, check_least
from slimreid.errors import ConfigError

PICTURES = (".png", ".jpg", ".jpeg", ".html", ".htm")


@dataclass(frozen=True)
class EmbedOptions:
    """Options of `slimreid embed`."""

    images: Path
    """Manifest, a folder with manifest.csv, or any folder of images."""
    model: Path = field(metadata=REQUIRED)
    """Folder of a run or checkpoint, a model file, or the folder of an exported model."""
    out: Path = Path("features.safetensors")
    """File for the features, with identities, paths, cameras and the model's fingerprint."""
    feature: Feature = "both"
    """Feature to compute: one branch of the model, or both together."""
    modalities: str | None = None
    """Use only these modalities, e.g. rgb,nir or rn; default: all there are."""
    modality: str | None = None
    """In a folder without manifest: modality of images whose path does not name one."""
    split: Split | None = None
    """Embed the rows of this split only."""
    cameras: Cameras = "auto"
    """Are cameras with the names of training cameras the same ones? auto = only in the data of the run."""
    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one. Exported models run on the CPU."""
    threads: int | None = None
    """CPU threads of an exported model; default: all that this process may use."""
    batch: int | None = None
    """Samples per batch; default: as in training."""
    workers: int | None = None
    """Threads that load images; default: as in training."""
    skip_broken: bool = False
    """Leave out samples whose files cannot be read, instead of stopping."""
    overwrite: bool = False
    """Replace a file that exists and is different."""

    def __post_init__(self) -> None:
        check_least(self, 1, "batch", "threads")
        check_least(self, 0, "workers")


@dataclass(frozen=True)
class SearchOptions:
    """Options of `slimreid search`."""

    images: list[str]
    """Image files. Names that differ only in the modality (a_rgb.png a_tir.png) are one sample, as are all
    files written tir=FILE."""
    in_: Path = field(metadata=REQUIRED)
    """Where to search: a folder of images, a manifest, or a file written by 'slimreid embed'."""
    model: Path | None = None
    """Folder of a run or checkpoint, a model file, or the folder of an exported model; default: the newest in
    the folder 'runs', or the one that made the embeddings."""
    top: int = 10
    """Number of answers per query."""
    feature: Feature = "both"
    """Feature to search by."""
    modality: str | None = None
    """Modality of images whose path does not name one; default: rgb."""
    device: str | None = None
    """cpu, cuda or mps; default: a GPU if there is one. Exported models run on the CPU."""
    threads: int | None = None
    """CPU threads of an exported model; default: all that this process may use."""
    picture: Path | None = None
    """Also draw queries and answers: .png, .jpg or .html."""
    json: bool = False
    """Print everything as JSON."""

    def __post_init__(self) -> None:
        check_least(self, 1, "top", "threads")
        if self.picture is not None and self.picture.suffix.lower() not in PICTURES:
            raise ConfigError(f"--picture {self.picture}: end its name in {', '.join(PICTURES)}")


@dataclass(frozen=True)
class ShowOptions:
    """Options of `slimreid show`."""

    model: Path
    """Folder of a run or checkpoint, a model file, or the folder of an exported model."""
    sample: list[str] = field(default_factory=list)
    """File names, query numbers (from 0), or split and number such as train:3; default: the first query."""
    token: int | None = None
    """Merged token whose weights to draw; default: the one that uses the fewest patches."""
    out: Path | None = None
    """Picture to write (.png), or a folder for several; default: pictures/ beside the model."""
    data: Path | None = None
    """Manifest to take samples from; default: the data of the run."""
    missing: str | None = None
    """Modalities to leave out of the sample, e.g. nir, nir,tir or nt."""
    rank: bool = False
    """Also draw the rank list of the sample, in a second file."""
    feature: Feature = "both"
    """Feature to rank by."""
    look: Literal["light", "dark"] = "light"
    """Colours of the picture."""
