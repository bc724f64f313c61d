"""The knobs of a synthetic world."""

from __future__ import annotations

from dataclasses import dataclass

from slimreid.data.synthetic.scenery.nuisances import Nuisances, nuisances
from slimreid.errors import ConfigError

OBJECTS = ("people", "vehicles")
_DEFAULT_SIZE = {"people": (128, 64), "vehicles": (64, 128)}
_SMALLEST, _LARGEST = 16, 2048


@dataclass(frozen=True)
class SynthOptions:
    """What to generate. Raises `ConfigError` naming the key that is out of range."""

    identities: int = 64
    """Number of identities, train and test together; at least 4."""
    cameras: int = 4
    """Number of cameras; every identity passes all of them. At least 2, or nothing could be found again."""
    images_per_camera: int = 3
    """Samples of each identity by each camera."""
    size: tuple[int, int] | None = None
    """Height and width in pixels; 128×64 for people and 64×128 for vehicles unless given."""
    seed: int = 0
    """Same seed and options, same bytes, whatever the number of workers."""
    objects: str = "people"
    """What is seen: `people` or `vehicles`."""
    difficulty: float = 0.5
    """Strength of everything a model must ignore: 0 nearly none, 1 all strong."""
    test_share: float = 1 / 3
    """Share of the identities held out for the test, in (0, 1)."""

    def __post_init__(self) -> None:
        for key, least in (("identities", 4), ("cameras", 2), ("images_per_camera", 1), ("seed", 0)):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{key} must be a whole number of at least {least}, not {value!r}")
        if self.objects not in OBJECTS:
            raise ConfigError(f"objects must be one of {', '.join(OBJECTS)}, not {self.objects!r}")
        if not 0 <= self.difficulty <= 1:
            raise ConfigError(f"difficulty must be between 0 and 1, not {self.difficulty!r}")
        if not 0 < self.test_share < 1:
            raise ConfigError(f"test_share must be between 0 and 1 (both excluded), not {self.test_share!r}")
        size = _DEFAULT_SIZE[self.objects] if self.size is None else tuple(self.size)
        if len(size) != 2 or not all(isinstance(n, int) and _SMALLEST <= n <= _LARGEST for n in size):
            raise ConfigError(
                f"size must be height and width between {_SMALLEST} and {_LARGEST} pixels, not {self.size!r}"
            )
        object.__setattr__(self, "size", size)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels, resolved."""
        assert self.size is not None  # __post_init__ fills it in
        return self.size

    @property
    def nuisances(self) -> Nuisances:
        """Strength of everything a model must ignore."""
        return nuisances(self.difficulty)

    @property
    def test_identities(self) -> int:
        """Number of identities in the test split; both splits keep at least two."""
        return min(max(round(self.identities * self.test_share), 2), self.identities - 2)
