"""`slimreid show`: what a model saw in a sample, and what it found for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from slimreid.console import console
from slimreid.errors import ConfigError

if TYPE_CHECKING:
    from slimreid.loading import LoadedModel


def show(
    run: Path,
    sample: list[str] = [],  # noqa: B006 - the command line copies it
    token: int | None = None,
    out: Path | None = None,
    data: Path | None = None,
    missing: str | None = None,
    rank: bool = False,
    features: str = "both",
    look: Literal["light", "dark"] = "light",
) -> None:
    """Draw which patches a model kept in a sample, and with --rank what it found for it.

    Args:
        run: Folder of a run, or a model file.
        sample: Names of files, numbers of queries (from 0), or split and number such as train:3; default: the
            first query.
        token: Merged token whose weights to show; default: the one that rests on the fewest patches.
        out: Picture to write (.png), or a folder for several samples; default: pictures/ beside the model.
        data: Manifest to take samples from; default: that of the run.
        missing: Spectra to leave out of the sample, e.g. nir, nir,tir or nt.
        rank: Draw the rank list of the sample too, in a second file.
        features: What to rank by: original, slimmed, fused or both.
        look: light or dark.
    """
    from slimreid.evaluation.data import open_data
    from slimreid.evaluation.features import check_kind
    from slimreid.loading import load
    from slimreid.models.reid_model import SLIMMED
    from slimreid.visual.sample_views import draw_sample, open_sample, part_of, rank_sample
    from slimreid.visual.style import LOOKS, save_picture

    loaded = load(run)
    _check_request(loaded, token, rank)
    dataset = open_data(loaded, data)
    chosen = [open_sample(loaded, dataset, name, missing) for name in sample or ["0"]]
    if rank:  # before anything is written
        check_kind(features, tuple(loaded.model.sizes))
        for seen in chosen:
            part_of(dataset, seen)
    targets = _targets(out or loaded.path.parent / "pictures", [seen.name for seen in chosen], out is None)
    for seen, target in zip(chosen, targets, strict=True):
        if loaded.model.second == SLIMMED:
            save_picture(draw_sample(seen, LOOKS[look], token), target)
            console.print(f"kept patches: {target}", soft_wrap=True)
        else:
            console.print("no kept patches: the model does not slim")
        if rank:
            listed = target.with_name(f"{target.stem}-rank{target.suffix}")
            save_picture(rank_sample(loaded, dataset, seen, features, LOOKS[look]), listed)
            console.print(f"rank list:    {listed}", soft_wrap=True)


def _check_request(loaded: LoadedModel, token: int | None, rank: bool) -> None:
    """Raise `ConfigError` for what a model without slimming cannot show."""
    from slimreid.models.reid_model import SLIMMED

    if loaded.model.second == SLIMMED:
        return
    without = f"{loaded.path}: this model does not slim (model.fusion: {loaded.model.fusion})"
    if token is not None:
        raise ConfigError(f"{without}, so it has no merged tokens; leave out --token")
    if not rank:
        raise ConfigError(f"{without}, so it keeps all patches; add --rank to see what it finds")


def _targets(out: Path, names: list[str], default: bool) -> list[Path]:
    """A file per sample: `out` itself for one sample, files in it where it is a folder."""
    if out.suffix.lower() == ".png" and not out.is_dir():
        if len(names) > 1:
            raise ConfigError(f"--out {out}: {len(names)} samples need a folder, not a file")
        return [out]
    if not default and out.suffix and not out.is_dir():
        raise ConfigError(f"--out {out}: pictures are .png, or give a folder")
    return [out / f"{name}.png" for name in names]
