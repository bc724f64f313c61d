"""`slimreid data preview`: see what the model will see."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slimreid.console import console
from slimreid.errors import ConfigError

if TYPE_CHECKING:  # the parser looks in here too, and this needs torch: so preview has its own file
    from slimreid.config import Config


def preview(config: Config, output: Path = Path("runs/preview"), batches: int = 1) -> None:
    """Show training batches as the model will see them: augmented, aligned, with dropped spectra.

    Args:
        config: Options of the run.
        output: Folder for the pictures and the resolved config.
        batches: How many batches to draw.
    """
    from itertools import islice

    from slimreid.config_io import save_config
    from slimreid.data.dropout import drop_from_batch
    from slimreid.data.loader import train_loader
    from slimreid.visual.dataset_views import batch_rows, save_sheet

    if batches < 1:
        raise ConfigError(f"batches must be at least 1, not {batches}")
    loader = train_loader(config)
    save_config(config, output)
    for number, batch in enumerate(islice(loader, batches)):
        batch = drop_from_batch(batch, config.transforms, config.seed, number)
        rows = batch_rows(batch, loader.dataset)
        save_sheet(rows, batch.modalities, output / f"batch_{number}.png", title=f"batch {number}")
    console.print(f"{len(loader)} batches per epoch; the first {min(batches, len(loader))} drawn in {output}")
    if loader.dropped:
        console.print(loader.report(), markup=False)
