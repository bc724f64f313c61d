"""Options of the commands that look at images with a trained model: `embed`, `search`, `show`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import REQUIRED, Cameras, Feature, Split
from slimreid.config.model import DEFAULT_MODEL
from slimreid.config.values import check_least
from slimreid.errors import ConfigError

PICTURES = (".png", ".jpg", ".jpeg", ".html", ".htm")


@dataclass(frozen=True)
class EmbedOptions:
    """Compute features of all images of a dataset or folder into one file."""

    images: Path
    """Manifest, a folder with manifest.csv, or any folder of images. Into Parquet: a manifest, which may be
    Parquet itself."""
    model: Path = Path(DEFAULT_MODEL)
    """Folder of a run or checkpoint, a model file, the folder of an exported model, or the name of one that
    ships."""
    out: Path = Path("features.safetensors")
    """File for the features (.safetensors), with identities, paths, cameras and the model's fingerprint; or a
    folder for Parquet files (no suffix, or .parquet), which are written piece by piece: run the same
    command to continue after a crash."""
    engine: Literal["local", "ray"] = "local"
    """What embeds: this process, or a pool of actors of Ray Data (into Parquet)."""
    address: str | None = None
    """Cluster of Ray: auto, HOST:PORT or ray://HOST:PORT; default: a Ray of this machine for this command."""
    actors: int | None = None
    """Actors of Ray, one model each; default: as many as fit."""
    actor_cpus: float = 1.0
    """CPUs of each actor."""
    actor_gpus: float = 0.0
    """GPUs of each actor; give --device cuda too."""
    json: bool = False
    """With Parquet: print the summary as JSON."""
    feature: Feature = "both"
    """Feature to compute: one branch of the model, or both together."""
    modalities: str | None = None
    """Use only these modalities, e.g. rgb,nir or rn; default: all there are."""
    modality: str | None = None
    """In a folder without manifest: modality of images whose path does not name one."""
    split: Split | None = None
    """Embed the rows of this split only."""
    camera: str | None = None
    """In a folder without manifest: camera that took the images, for a model that was adapted to a site."""
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
        check_least(self, 1, "batch", "threads", "actors")
        check_least(self, 0, "workers")
        if self.engine == "local" and (
            self.address or self.actors or self.actor_cpus != 1 or self.actor_gpus
        ):
            raise ConfigError("--address, --actors, --actor-cpus and --actor-gpus go with --engine ray")
        if self.engine == "ray" and not self.to_parquet:
            raise ConfigError(f"--engine ray writes a folder of Parquet files: --out {self.out.stem}")
        if self.to_parquet and (
            self.modality or self.camera or self.skip_broken or self.overwrite or self.workers is not None
        ):
            raise ConfigError(
                "--modality, --camera, --skip-broken, --overwrite and --workers do not go with Parquet: it "
                "takes a manifest, gives a broken image a row with a status, and goes on with what is there"
            )
        if self.json and not self.to_parquet:
            raise ConfigError("--json goes with Parquet")

    @property
    def to_parquet(self) -> bool:
        """Whether a folder of Parquet files is wanted."""
        return self.out.suffix.lower() in ("", ".parquet")


@dataclass(frozen=True)
class SearchOptions:
    """Find the samples of a folder that are most similar to given images."""

    images: list[str]
    """Image files. Names that differ only in the modality (a_rgb.png a_tir.png) are one sample, as are all
    files written tir=FILE."""
    in_: Path = field(metadata=REQUIRED)
    """Where to search: a folder of images, a manifest, or a file written by 'slimreid embed'."""
    model: Path | None = None
    """Folder of a run or checkpoint, a model file, the folder of an exported model, or the name of one that
    ships; default: people-tiny, for a file of embeddings the model that made it, where that one ships or is
    in the folder 'runs'."""
    top: int = 10
    """Number of answers per query."""
    feature: Feature = "both"
    """Feature to search by."""
    modality: str | None = None
    """Modality of images whose path does not name one; default: rgb."""
    camera: str = ""
    """Camera that took the images to search for, for a model that was adapted to a site."""
    gallery_camera: str | None = None
    """In a folder without manifest: camera that took the images to search among."""
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
    """Draw the patches a model kept in a sample, with --rank also its rank list."""

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
