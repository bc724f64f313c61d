"""`slimreid adapt`: a model that knows the cameras of a site."""

from __future__ import annotations

from slimreid.cli.console import console, say, table
from slimreid.cli.options.export import AdaptOptions
from slimreid.inference.adapt import FEW
from slimreid.inference.adapt import adapt as adapt_model
from slimreid.inference.features.data import some
from slimreid.inference.features.extract import Extraction


def adapt(options: AdaptOptions) -> None:
    """Count the mean feature of each camera and write a model that subtracts it."""
    broken = options.skip_broken or None
    found = adapt_model(
        options.model,
        options.images,
        options.out,
        split=options.split,
        modality=options.modality,
        extraction=Extraction(batch=options.batch, workers=options.workers, skip_broken=broken),
        device=options.device,
        overwrite=options.overwrite,
    )
    if found.cameras:
        rows = [[name, f"{n:,}"] for name, n in zip(found.cameras, found.counts.tolist(), strict=True)]
        console.print(table(["camera", "samples"], rows))
    else:
        say("note: no camera is named, so all images have one mean; a manifest with cameras helps more")
    few = [name for name, n in zip(found.cameras, found.counts.tolist(), strict=True) if n < FEW]
    if few:
        say(f"note: fewer than {FEW} samples of {some(few)}, drawn towards the mean of the site")
    say(f"written: {options.out}")
