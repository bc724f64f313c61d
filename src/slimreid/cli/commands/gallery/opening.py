"""What the commands of a gallery share: opening it, filters, answers as JSON."""

from __future__ import annotations

import json

from slimreid.cli.options.gallery import GalleryOptions, ModelOptions, RowOptions
from slimreid.errors import ConfigError
from slimreid.gallery.gallery import Gallery
from slimreid.gallery.store.rows import Filter
from slimreid.inference.load import LoadedModel, load
from slimreid.modalities import parse_subset
from slimreid.times import parse_time


def open_gallery(options: GalleryOptions) -> Gallery:
    """The gallery, without its model."""
    return Gallery(options.gallery, by=options.by)


def open_with_model(options: ModelOptions) -> tuple[Gallery, LoadedModel]:
    """The gallery with its model on the device that was asked for."""
    gallery = Gallery(options.gallery, by=options.by)
    path = options.model or gallery.info.path
    if not path:
        raise ConfigError("the gallery does not say where its model is; name it with --model")
    loaded = load(path, options.device)
    gallery.use(loaded)
    return gallery, loaded


def row_filter(gallery: Gallery, options: RowOptions) -> Filter:
    """The rows that the options mean."""
    names = parse_subset(options.modalities, gallery.info.modalities) if options.modalities else None
    return Filter(
        ids=options.id or None,
        identities=options.identity or None,
        groups=options.group or None,
        cameras=options.camera or None,
        since=parse_time(options.since or ""),
        until=parse_time(options.until or ""),
        modalities=names,
    )


def print_json(value: object) -> None:
    """Print as JSON, whatever the width of the terminal."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
