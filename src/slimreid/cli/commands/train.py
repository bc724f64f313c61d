"""`slimreid train`, and `import-demo`, which makes a run of DeMo's files."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from slimreid.cli.console import console, quietened, say, table
from slimreid.cli.options.training import ImportDemoOptions, TrainOptions
from slimreid.cli.signals import stop_code
from slimreid.compat.demo_options import read_demo_file, read_demo_options
from slimreid.compat.demo_run import import_demo as convert
from slimreid.errors import SlimReIDError
from slimreid.runs.folder import RunFolder
from slimreid.training import loop
from slimreid.training.callbacks.display import make_display
from slimreid.training.checkpoint.store import CheckpointStore
from slimreid.training.distributed.failures import what_is_left
from slimreid.training.distributed.processes import StoppedByMainError, join_processes, leave_processes
from slimreid.training.environment import keep_freed_memory

logger = logging.getLogger(__name__)


def train(options: TrainOptions) -> int:
    """Train a model, or continue a run."""
    keep_freed_memory()
    processes = join_processes()
    out = options.out
    if processes.main and options.demo_config is not None:
        for note in read_demo_options(read_demo_file(options.demo_config, options.demo_options)).notes():
            say(f"{options.demo_config.name}: {note}")
    quiet = nullcontext() if processes.main else quietened("slimreid", logging.ERROR)
    try:
        with quiet:
            display = [make_display(console)] if processes.main else []
            result = loop.train(options.config, out, options.resume, display, command=options.command)
    except StoppedByMainError:
        return 1
    except SlimReIDError as error:
        if processes.main:
            raise
        raise type(error)(f"process {processes.rank}: {error}") from error
    except KeyboardInterrupt as stop:
        if processes.main:
            saved = CheckpointStore(RunFolder(out)).exists
            again = f", resume with --out {out} --resume auto" if saved else ""
            logger.info("stopped; %s%s", what_is_left(saved), again)
        return stop_code(stop)
    finally:
        leave_processes()
    if processes.main:
        _print_result(result, out)
    return 0


def _print_result(result: dict[str, Any], out: Path) -> None:
    rows: list[tuple[str, object]] = [
        ("chosen on", result["select_on"]),
        ("epoch", f"{result['selected_epoch']} of {result['epochs']}"),
        ("feature", result["features"]),
    ]
    if result["origin"]:
        rows.append(("data", result["origin"]))
    if result["best"]:
        rows.append((f"{result['best']['split']} mAP", f"{100 * result['best']['map']:.1f}"))
    test = result["test"]
    if test is None:
        rows.append(("test", "no query and gallery rows"))
    else:
        rows.append(("test mAP", f"{100 * test['map']:.1f}"))
        rows += [(f"test rank-{k}", f"{100 * share:.1f}") for k, share in test["cmc"].items()]
        rows.append(("test mINP", f"{100 * test['minp']:.1f}"))
        rows.append(("protocol", test["protocol"]))
    console.print(table(["result", ""], rows))
    if "note" in result:
        say(f"note: {result['note']}")
    say(f"model: {out / 'model.safetensors'}")


def import_demo(options: ImportDemoOptions) -> None:
    """Turn a DeMo config and checkpoint into a run."""
    found = convert(options.config, options.checkpoint, options.out, pairs=options.set, manifest=options.data)
    card = found.card
    rows: list[tuple[str, object]] = [
        ("backbone", card.config.model.backbone),
        ("fusion", card.config.model.fusion),
        ("image size", "×".join(map(str, card.config.transforms.size))),
        ("identities, cameras", f"{len(card.identities)}, {len(card.cameras)}"),
        ("fingerprint", found.fingerprint[:12]),
    ]
    console.print(table(["imported", ""], rows))
    for note in found.notes:
        say(f"{options.config.name}: {note}")
    say(f"model: {found.model}")
    say(f"next: slimreid evaluate {options.out}" + ("" if options.data else " --data MANIFEST"))
