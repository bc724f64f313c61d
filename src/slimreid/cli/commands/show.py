"""`slimreid show`: what a model kept of a sample, and what it finds for it."""

from __future__ import annotations

from pathlib import Path

from slimreid.cli.console import say
from slimreid.cli.options.images import ShowOptions
from slimreid.errors import ConfigError
from slimreid.inference.features.data import open_data
from slimreid.inference.load import load, results_folder
from slimreid.inference.loaded_model import LoadedModel
from slimreid.inference.similarity import check_kind
from slimreid.inference.trained_model import TrainedModel
from slimreid.visual.patches.sample_views import draw_sample, open_sample, part_of, rank_sample
from slimreid.visual.style import LOOKS, save_picture


def show(options: ShowOptions) -> None:
    """Draw which patches a model kept in a sample, and with --rank what it finds for it."""
    loaded = load(options.model)
    _check_request(loaded, options.token, options.rank)
    look = LOOKS[options.theme]
    dataset = open_data(loaded, options.data)
    chosen = [open_sample(loaded, dataset, name, options.without) for name in options.sample or ["0"]]
    if options.rank:  # before anything is written
        check_kind(options.feature, tuple(loaded.sizes))
        for seen in chosen:
            part_of(dataset, seen)
    folder = options.out or results_folder(loaded.path) / "pictures"
    targets = _targets(folder, [seen.name for seen in chosen], options.out is None)
    for seen, target in zip(chosen, targets, strict=True):
        if not isinstance(loaded, TrainedModel):
            say("no kept patches: an exported model does not report them; give the run it came from")
        elif loaded.config.model.reduction != "none":
            save_picture(draw_sample(seen, look, options.token), target)
            say(f"kept patches: {target}")
        else:
            say("no kept patches: the model has no token reduction")
        if options.rank:
            listed = target.with_name(f"{target.stem}-rank{target.suffix}")
            save_picture(rank_sample(loaded, dataset, seen, options.feature, look), listed)
            say(f"rank list:    {listed}")


def _check_request(loaded: LoadedModel, token: int | None, rank: bool) -> None:
    """Raise `ConfigError` for what an exported model, or one without token reduction, cannot show."""
    if not isinstance(loaded, TrainedModel) and not rank:
        raise ConfigError(
            f"{loaded.path}: an exported model does not report the patches it kept; give the run it came "
            "from, or add --rank to see what it finds"
        )
    if loaded.config.model.reduction != "none":
        return
    without = f"{loaded.path}: this model has no token reduction (model.reduction: none)"
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
