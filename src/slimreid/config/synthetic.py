"""The options of a synthetic world, and what a model must ignore in it at each difficulty."""

from __future__ import annotations

from dataclasses import dataclass

from slimreid.errors import ConfigError

# At medium difficulty most samples should be usable in most modalities, so what can ruin a sample
# altogether grows late, and what only disturbs grows evenly.
_POWERS = {
    "background": 2.3,
    "times": 1.6,
    "pose": 1.6,
    "strangers": 1.0,
    "occlusion": 1.0,
    "camera": 2.0,
    "sensor": 1.0,
    "misalignment": 1.0,
}
OBJECTS = ("people", "vehicles")
_DEFAULT_SIZE = {"people": (128, 64), "vehicles": (64, 128)}
_SMALLEST, _LARGEST = 16, 2048


@dataclass(frozen=True)
class Nuisances:
    """Strengths, 0 = off … 1 = as strong as it gets."""

    background: float
    """Contrast of the backgrounds, and how much of the camera's view is used."""
    times: float
    """How often it is not simply day."""
    pose: float
    """Spread of view, walk, scale and place."""
    strangers: float
    """How often something distracting stands behind the object."""
    occlusion: float
    """How often something stands in front of it."""
    camera: float
    """Differences between the cameras in colour, contrast and gain."""
    sensor: float
    """Blur and noise."""
    misalignment: float
    """Shift between the modalities."""


def nuisances(difficulty: float) -> Nuisances:
    """Strength of each nuisance at a difficulty in [0, 1]: all off at 0, all full at 1."""
    return Nuisances(**{name: difficulty**power for name, power in _POWERS.items()})


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
