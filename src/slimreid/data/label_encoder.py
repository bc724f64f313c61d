"""Numbers for names: identities, cameras and scenes as the integers that models and metrics use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slimreid.data.manifest import Manifest, Sample
from slimreid.files import natural_key


@dataclass(frozen=True)
class LabelEncoder:
    """Name -> number, in the order of the numbers; names seen in training come first."""

    identity: dict[str, int]
    camera: dict[str, int]
    scene: dict[str, int]
    num_classes: int
    """Identities that are trained on: labels 0 … num_classes − 1."""
    num_cameras: int
    """Cameras seen in training; a larger number is a camera the model does not know."""

    @classmethod
    def from_manifest(cls, manifest: Manifest, cameras: Sequence[str] = ()) -> LabelEncoder:
        """Number everything in a manifest; `cameras` known to a trained model keep their numbers."""
        train, everything = manifest.select("train"), manifest.samples
        classes = _sorted(s.identity for s in train)
        known = tuple(cameras) or _sorted(s.camera for s in train)
        return cls(
            identity=_number(classes, (s.identity for s in everything)),
            camera=_number(known, (s.camera for s in everything)),
            scene=_number((), (s.scene for s in everything if s.scene)),
            num_classes=len(classes),
            num_cameras=len(known),
        )

    @property
    def trained_identities(self) -> tuple[str, ...]:
        """Names of the identities that are trained on, in the order of their labels."""
        return tuple(self.identity)[: self.num_classes]

    @property
    def trained_cameras(self) -> tuple[str, ...]:
        """Names of the cameras seen in training, in the order of their numbers."""
        return tuple(self.camera)[: self.num_cameras]

    def numbers(self, sample: Sample) -> tuple[int, int, int]:
        """(identity, camera, scene) of a sample; scene −1 where it has none."""
        scene = self.scene[sample.scene] if sample.scene else -1
        return self.identity[sample.identity], self.camera[sample.camera], scene


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names), key=natural_key))


def _number(first: Sequence[str], names: Iterable[str]) -> dict[str, int]:
    rest = _sorted(set(names) - set(first))
    return {name: number for number, name in enumerate((*first, *rest))}
