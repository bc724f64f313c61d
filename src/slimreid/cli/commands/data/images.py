"""`slimreid data synth`, `simulate`, `sheet` and `preview`: images of datasets, drawn."""

from __future__ import annotations

import shlex
from itertools import islice

from slimreid.cli.console import say
from slimreid.cli.options.data import PreviewOptions, SheetOptions, SimulateOptions, SynthOptions
from slimreid.config.files import save_config
from slimreid.data.augment.whole_batches import augment_batch
from slimreid.data.loader import train_loader
from slimreid.data.manifest import read_manifest
from slimreid.data.simulate.dataset import simulate_manifest
from slimreid.data.synthetic.generate import make_world
from slimreid.visual.datasets.views import batch_rows, dataset_rows, save_sheet


def synth(options: SynthOptions) -> None:
    """Generate a synthetic rgb/nir/tir dataset, as image files with a manifest."""
    out = options.out
    count = make_world(out, options.world, options.val_identities, options.workers)
    say(f"{count} samples of {options.identities} {options.objects} written to {out}")
    say(f"next: slimreid data check {shlex.quote(str(out))}")


def simulate(options: SimulateOptions) -> None:
    """Simulate nir and tir images for an rgb dataset, from its pixels alone."""
    result = simulate_manifest(read_manifest(options.data), options.out, options.seed, options.workers)
    say(f"{len(result.samples)} rows ({result.origin}) written to {options.out}")


def sheet(options: SheetOptions) -> None:
    """Draw a contact sheet: a few identities, each from several cameras in all modalities."""
    manifest = read_manifest(options.data, options.modalities)
    rows = dataset_rows(manifest, options.split, options.identities, options.images, options.seed)
    save_sheet(rows, manifest.modalities, options.out, title=f"{options.data}", note=manifest.origin)
    say(f"contact sheet of {len(rows)} identities: {options.out}")


def preview(options: PreviewOptions) -> None:
    """Draw training batches as the model will see them: augmented, aligned, with dropped modalities."""
    config, out = options.config, options.out
    loader = train_loader(config)
    save_config(config, out)
    for number, batch in enumerate(islice(loader, options.batches)):
        batch = augment_batch(batch, config.transforms, config.seed, number)
        rows = batch_rows(batch, loader.dataset)
        save_sheet(rows, batch.modalities, out / f"batch_{number}.png", title=f"batch {number}")
    drawn = min(options.batches, len(loader))
    say(f"{len(loader)} batches per epoch; the first {drawn} drawn in {out}")
    if loader.dropped:
        say(loader.report())
