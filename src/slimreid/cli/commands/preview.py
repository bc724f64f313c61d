"""`slimreid data preview`: what the model will see."""

from __future__ import annotations

from itertools import islice

from slimreid.cli.console import say
from slimreid.cli.options.data import PreviewOptions
from slimreid.config.files import save_config
from slimreid.data.augment.modality_dropout import drop_from_batch
from slimreid.data.augment.style import mix_styles
from slimreid.data.loader import train_loader
from slimreid.visual.datasets.views import batch_rows, save_sheet


def preview(options: PreviewOptions) -> None:
    """Draw training batches as the model will see them: augmented, aligned, with dropped modalities."""
    config, out = options.config, options.out
    loader = train_loader(config)
    save_config(config, out)
    for number, batch in enumerate(islice(loader, options.batches)):
        batch = drop_from_batch(batch, config.transforms, config.seed, number)
        batch = mix_styles(batch, config.transforms, config.seed, number)
        rows = batch_rows(batch, loader.dataset)
        save_sheet(rows, batch.modalities, out / f"batch_{number}.png", title=f"batch {number}")
    drawn = min(options.batches, len(loader))
    say(f"{len(loader)} batches per epoch; the first {drawn} drawn in {out}")
    if loader.dropped:
        say(loader.report())
