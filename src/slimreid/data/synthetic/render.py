"""One sample: an identity in front of a camera, in all modalities at once, with its true mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from slimreid.config.synthetic import SynthOptions
from slimreid.data.synthetic.objects.identity import Identity
from slimreid.data.synthetic.objects.looks import coats, pick
from slimreid.data.synthetic.objects.people import Pose, paint_person
from slimreid.data.synthetic.objects.person_looks import PersonShape
from slimreid.data.synthetic.objects.vehicles import half_extent, paint_vehicle
from slimreid.data.synthetic.scenery import scene
from slimreid.data.synthetic.scenery.canvas import MATERIAL, OBJECT, Array
from slimreid.data.synthetic.scenery.clutter import IN_FRONT, LIVELY, STANDING, Rng
from slimreid.data.synthetic.scenery.materials import Folds
from slimreid.data.synthetic.scenery.scene import MARGIN, SUPERSAMPLE, Camera
from slimreid.data.synthetic.scenery.sensor import (
    CORE,
    SENSORS,
    Conditions,
    draw_conditions,
    shrink,
    to_bytes,
)
from slimreid.modalities import TIR

_STREAM = 3


@dataclass(frozen=True)
class Sample:
    """What is stored of one sample."""

    images: dict[str, Image.Image]
    """One picture per modality, all of the same size."""
    mask: Image.Image
    """255 where the object itself shows, aligned with the visible picture."""
    conditions: Conditions


def render_sample(options: SynthOptions, identity: Identity, camera_number: int, number: int) -> Sample:
    """Paint and expose one sample; it depends on nothing but the arguments."""
    rng = np.random.default_rng([options.seed, _STREAM, identity.number, camera_number, number])
    camera = scene.camera(options, camera_number)
    now = draw_conditions(rng, options.nuisances.times)
    canvas = _look_at(options, camera, rng)
    pose = _draw_pose(options, identity, camera, now, rng)
    _distract(options, canvas, pose, rng)
    _paint(identity, canvas, pose, rng)
    _occlude(options, canvas, pose, rng)
    return Sample(_expose(options, canvas, camera, now, rng), _mask(options, canvas), now)


def _look_at(options: SynthOptions, camera: Camera, rng: Rng) -> Array:
    """A window of the camera's background, always about the same one at difficulty 0."""
    height, width = scene.canvas_size(options)
    free_rows, free_cols = camera.background.shape[0] - height, camera.background.shape[1] - width
    spread = 0.15 + 0.85 * options.nuisances.background
    top = round(free_rows * (0.5 + spread * float(rng.uniform(-0.5, 0.5))))
    left = round(free_cols * (0.5 + spread * float(rng.uniform(-0.5, 0.5))))
    window: Array = camera.background[top : top + height, left : left + width].copy()
    return window


def _draw_pose(options: SynthOptions, identity: Identity, camera: Camera, now: Conditions, rng: Rng) -> Pose:
    height, width = scene.canvas_size(options)
    d = options.nuisances.pose
    zoom = float(np.exp(rng.normal(0, 0.02 + 0.08 * d)))
    shift = rng.normal(0, 0.005 + 0.04 * d, size=2)
    # Everybody walks along the camera's main direction at first, anywhere when it is hard.
    wander = d * camera.yaw + float(rng.normal(0, 0.1 + 0.7 * d))
    back = np.pi if rng.random() < 0.5 * d else 0.0
    x = width * (0.5 + float(shift[0]))
    phase, stride = float(rng.uniform(0, 2 * np.pi)), 0.15 + float(rng.uniform(0, 0.2 + 0.2 * d))
    if isinstance(identity.shape, PersonShape):
        scale, y = 0.91 * height * zoom, height * (0.965 + 0.5 * float(shift[1]))
        return Pose((x, y), scale, wander + back, camera.pitch, phase, stride, now.side)
    # A vehicle changes more with the view than a person. A little from behind shows more than the plain side.
    yaw = 0.35 + back + 0.6 * wander
    wide, high = half_extent(identity.shape, yaw, camera.pitch)
    scale = zoom * min(0.45 * width / wide, 0.84 * height / high)
    deep = 0.5 * (high - 0.8) * np.sin(camera.pitch) * scale
    y = height * (0.90 + 0.4 * float(shift[1])) - float(deep)
    return Pose((x, y), scale, yaw, camera.pitch, light=now.side)


def _paint(identity: Identity, canvas: Array, pose: Pose, rng: Rng) -> None:
    finish, folds = coats(identity.looks), Folds(rng)
    if isinstance(identity.shape, PersonShape):
        paint_person(canvas, identity.shape, finish, pose, folds)
    else:
        paint_vehicle(canvas, identity.shape, finish, pose, folds)


def _distract(options: SynthOptions, canvas: Array, pose: Pose, rng: Rng) -> None:
    """Perhaps something moves or stands behind the object, half out of the picture."""
    if rng.random() >= 0.75 * options.nuisances.strangers:
        return
    height, width, _ = canvas.shape
    beside = float(rng.choice((-1, 1))) * float(rng.uniform(0.28, 0.52)) * width
    foot = (pose.foot[0] + beside, pose.foot[1] - float(rng.uniform(0.02, 0.14)) * height)
    kinds = LIVELY if rng.random() < 0.6 else STANDING
    pick(rng, kinds)(canvas, foot, scene.metre(options) * float(rng.uniform(0.7, 0.95)), rng)


def _occlude(options: SynthOptions, canvas: Array, pose: Pose, rng: Rng) -> None:
    """Perhaps something stands in front of the object."""
    if rng.random() >= 0.6 * options.nuisances.occlusion:
        return
    height, width, _ = canvas.shape
    foot = (pose.foot[0] + float(rng.uniform(-0.35, 0.35)) * width, height * float(rng.uniform(0.97, 1.1)))
    near: Callable[..., None] = pick(rng, (*IN_FRONT, LIVELY[0]))
    size = scene.metre(options) * float(rng.uniform(0.85, 1.15))
    if near is LIVELY[0]:  # a passer-by hides much, so only at the side
        foot = (pose.foot[0] + float(rng.choice((-1, 1))) * float(rng.uniform(0.3, 0.5)) * width, foot[1])
    near(canvas, foot, size, rng)


def _crop(options: SynthOptions, canvas: Array, down: int, right: int) -> Array:
    height, width = (n * SUPERSAMPLE for n in options.image_size)
    return canvas[MARGIN + down : MARGIN + down + height, MARGIN + right : MARGIN + right + width]


def _mask(options: SynthOptions, canvas: Array) -> Image.Image:
    share = shrink(_crop(options, canvas, 0, 0)[..., OBJECT : OBJECT + 1])[..., 0]
    return Image.fromarray(np.where(share >= 0.5, 255, 0).astype(np.uint8))


def _expose(
    options: SynthOptions, canvas: Array, camera: Camera, now: Conditions, rng: Rng
) -> dict[str, Image.Image]:
    canvas[..., MATERIAL.start : 4].clip(0, 1.2, out=canvas[..., MATERIAL.start : 4])
    # Up to two image pixels between the sensors at the hardest; the visible one is the reference.
    reach = round(MARGIN * options.nuisances.misalignment)
    images = {}
    for k, (modality, sensor) in enumerate(SENSORS.items()):
        down, right = (int(n) for n in rng.integers(-reach, reach + 1, size=2)) if k else (0, 0)
        small = shrink(_crop(options, canvas, down, right))
        extra = {"core": CORE[options.objects]} if modality == TIR else {}
        picture = sensor(small, camera, now, options.nuisances.sensor, rng, **extra)
        images[modality] = Image.fromarray(to_bytes(picture))
    return images
