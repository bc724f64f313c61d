"""How the public datasets lie on disk.

A dataset is one entry in `LAYOUTS`: which folder is which split, how a path spells identity, camera
and scene, and under which protocol it is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slimreid.data.manifest import Protocol, Split
from slimreid.modalities import DEFAULT_MODALITIES, RGB

IDENTITY_FOLDERS = "identities"
"""Layout of one folder per identity, without cameras."""

_TEST: tuple[Split, ...] = ("query", "gallery")
_BOXES: Mapping[str, tuple[Split, ...]] = {
    "bounding_box_train": ("train",),
    "query": ("query",),
    "bounding_box_test": ("gallery",),
}
_SPLITS: Mapping[str, tuple[Split, ...]] = {
    "train": ("train",),
    "query": ("query",),
    "gallery": ("gallery",),
    "val": ("val",),
    "test": _TEST,
}


@dataclass(frozen=True)
class Layout:
    """Where a dataset keeps its images and what their paths mean."""

    title: str
    template: str
    splits: Mapping[str, tuple[Split, ...]]
    """Folder -> the splits its images belong to."""
    roots: tuple[str, ...]
    """Sub-folders of the given folder in which the splits may lie."""
    tree: tuple[str, ...]
    """What a person should find on disk, one path per line."""
    protocol: Protocol = "camera"
    strip: tuple[str, ...] = ()
    """Modalities that lie side by side in one file, left to right; empty = one file per modality."""
    modality: str | None = None
    """The only modality of the dataset, where paths do not name one."""
    named_by_file: bool = False
    """Whether names of files and folders may tell the modality where the template does not."""
    ignore: tuple[str, ...] = ()
    """Identities that are not part of the protocol."""


LAYOUTS: dict[str, Layout] = {
    "rgbnt201": Layout(
        "RGBNT201",
        r"{split}/{modality}/{identity:\d+}_cam{camera:\d+}_{}",
        {"train_171": ("train",), "test": _TEST},
        ("", "RGBNT201"),
        ("{train_171,test}/{RGB,NI,TI}/000258_cam1_0_00.jpg",),
    ),
    "rgbnt100": Layout(
        "RGBNT100",
        r"{split}/{identity:\d+}_c{camera:\d+}_{}",
        _BOXES,
        ("rgbir", "RGBNT100/rgbir", ""),
        ("rgbir/{bounding_box_train,query,bounding_box_test}/0001_c1_....jpg   (modalities side by side)",),
        strip=DEFAULT_MODALITIES,
    ),
    "msvr310": Layout(
        "MSVR310",
        r"{split}/{}/{modality}/{identity:[^/]{4}}_s{scene:[^/]{3}}_v{camera:[^/]}{}",
        {"bounding_box_train": ("train",), "query3": ("query",), "bounding_box_test": ("gallery",)},
        ("", "MSVR310"),
        ("{bounding_box_train,query3,bounding_box_test}/0001/{vis,ni,th}/0001_s001_v1_....jpg",),
        protocol="scene",
    ),
    "wmveid863": Layout(
        "WMVeID863",
        r"{split}/{identity}/{modality}/v{camera:\d+}_n{x_night:\d+}_s{scene:\d+}{}",
        {"train": ("train",), "query": ("query",), "test": ("gallery",)},
        ("", "WMVeID863"),
        ("{train,query,test}/0001/{vis,ni,th}/v1_n1_s001_....jpg",),
    ),
    "market1501": Layout(
        "Market-1501",
        r"{split}/{identity:-?\d+}_c{camera:\d+}s{}",
        _BOXES,
        ("", "Market-1501-v15.09.15", "Market-1501", "market1501"),
        ("{bounding_box_train,query,bounding_box_test}/0002_c1s1_000451_03.jpg",),
        modality=RGB,
        ignore=("-1",),
    ),
    "folder": Layout(
        "your own folder",
        r"{split}/{modality}/{identity}/{camera:[^/_]+}_{}",
        _SPLITS,
        ("",),
        ("{train,query,gallery,val,test}/<modality>/<identity>/<camera>_....jpg", "or give --template"),
    ),
    IDENTITY_FOLDERS: Layout(
        "identities",
        r"{split}/{identity}/{}",
        _SPLITS,
        ("",),
        ("<identity>/....jpg or {train,query,gallery,val,test}/<identity>/....jpg   (no cameras)",),
        named_by_file=True,
    ),
}
