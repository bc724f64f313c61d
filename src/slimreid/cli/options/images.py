"""Options of the commands that look at images with a trained model: `embed`, `search`, `show`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from slimreid.cli.options import (
    NOTE,
    REQUIRED,
    BatchOptions,
    CameraOption,
    DeviceOption,
    Feature,
    JsonOption,
    ModelOption,
    Split,
    ThreadsOption,
)
from slimreid.config.model import DEFAULT_MODEL
from slimreid.config.values import check_least
from slimreid.errors import ConfigError

PICTURES = (".png", ".jpg", ".jpeg", ".html", ".htm")


@dataclass(frozen=True, kw_only=True)
class EmbedOptions(BatchOptions, ThreadsOption, DeviceOption, CameraOption, ModelOption):
    """Compute features of all images of a dataset or folder."""

    images: Path
    """Manifest, a folder with manifest.csv, or any folder of images. For Parquet output: a manifest (.csv or
    .parquet)."""
    model: Path = Path(DEFAULT_MODEL)
    out: Path = Path("features.safetensors")
    """File for the features (.safetensors), with identities, paths, cameras and the model's fingerprint; or a
    folder for Parquet files (no suffix, or .parquet). Parquet is written piece by piece: run the same command
    to continue after a crash."""
    engine: Literal["local", "ray"] = "local"
    """Embed in this process, or in a pool of Ray Data actors (Parquet output only)."""
    address: str | None = None
    """Ray cluster: auto, HOST:PORT or ray://HOST:PORT; default: Ray is started on this machine."""
    actors: int | None = None
    """Number of Ray actors, one model each; default: as many as fit."""
    actor_cpus: float = 1.0
    """CPUs of each actor."""
    actor_gpus: float = 0.0
    """GPUs of each actor; give --device cuda too."""
    json: bool = False
    """Parquet output only: print the summary as JSON."""
    feature: Feature = "both"
    """Feature to compute: one branch of the model, or both together."""
    modalities: str | None = None
    """Use only these modalities, e.g. rgb,nir or rn; default: all there are."""
    modality: str | None = None
    """In a folder without manifest: modality of images whose path names none."""
    split: Split | None = None
    """Embed the rows of this split only."""
    camera: str | None = None
    """Camera that took the images of a folder without manifest, for a model adapted to a site ('slimreid
    adapt')."""
    overwrite: bool = False
    """Replace a file that exists and is different."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "threads", "actors")
        if self.engine == "local" and (
            self.address or self.actors or self.actor_cpus != 1 or self.actor_gpus
        ):
            raise ConfigError("--address, --actors, --actor-cpus and --actor-gpus need --engine ray")
        if self.engine == "ray" and not self.to_parquet:
            raise ConfigError(f"--engine ray writes a folder of Parquet files: --out {self.out.stem}")
        if self.to_parquet and (
            self.modality or self.camera or self.skip_broken or self.overwrite or self.workers is not None
        ):
            raise ConfigError(
                "--modality, --camera, --skip-broken, --overwrite and --workers cannot be used with "
                "Parquet output: it takes a manifest and gives broken images a status"
            )
        if self.json and not self.to_parquet:
            raise ConfigError("--json needs Parquet output")

    @property
    def to_parquet(self) -> bool:
        """Whether a folder of Parquet files is wanted."""
        return self.out.suffix.lower() in ("", ".parquet")


@dataclass(frozen=True, kw_only=True)
class SearchOptions(JsonOption, ThreadsOption, DeviceOption, ModelOption):
    """Find the samples of a folder that are most similar to given images."""

    images: list[str]
    """Image files. Files whose names differ only in the modality (a_rgb.png a_tir.png) are one sample, as are
    all files given as MODALITY=FILE (tir=a.png)."""
    in_: Path = field(metadata=REQUIRED)
    """Where to search: a folder of images, a manifest, or a file written by 'slimreid embed'."""
    model: Path | None = field(
        default=None,
        metadata={
            NOTE: "Default: people-tiny; for a file of embeddings the model that made it, if built in or "
            "in the folder 'runs'."
        },
    )
    top: int = 10
    """Number of results per query."""
    feature: Feature = "both"
    """Feature to search by."""
    modality: str | None = None
    """Modality of images whose path names none; default: rgb."""
    query_camera: str = ""
    """Camera that took the query images, for a model adapted to a site ('slimreid adapt')."""
    gallery_camera: str | None = None
    """Camera that took the images of a folder without manifest, for a model adapted to a site."""
    picture: Path | None = None
    """Also draw queries and results: .png, .jpg or .html."""

    def __post_init__(self) -> None:
        check_least(self, 1, "top", "threads")
        if self.picture is not None and self.picture.suffix.lower() not in PICTURES:
            raise ConfigError(f"--picture {self.picture}: end its name in {', '.join(PICTURES)}")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(ModelOption):
    """Draw the patches a model kept in a sample, with --rank also its rank list."""

    model: Path = field(metadata={NOTE: "An exported model needs --rank."})
    sample: list[str] = field(default_factory=list)
    """File names, query numbers (from 0), or split and number such as train:3; default: the first query."""
    token: int | None = None
    """Merged token whose weights to draw; default: the one that uses the fewest patches."""
    out: Path | None = None
    """Picture to write (.png), or a folder for several; default: pictures/ beside the model."""
    data: Path | None = None
    """Manifest to take samples from; default: the data of the run."""
    without: str | None = None
    """Modalities to leave out of the sample, e.g. nir, nir,tir or nt."""
    rank: bool = False
    """Also draw the rank list of the sample, in a second file."""
    feature: Feature = "both"
    """Feature to rank by."""
    theme: Literal["light", "dark"] = "light"
    """Colours of the picture."""
