"""`slimreid train`: train a model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slimreid.console import console, table
from slimreid.errors import SlimReIDError

if TYPE_CHECKING:
    from slimreid.config import Config

logger = logging.getLogger(__name__)


def train(
    config: Config,
    output: Path = Path("runs/train"),
    resume: str = "never",
    demo_config: Path | None = None,
    demo_options: list[str] | None = None,
) -> int:
    """Train a model, or go on with a run.

    Args:
        config: Options of the run.
        output: Folder of the run: checkpoints, metrics, result and the model to share.
        resume: auto = go on with the run in the output folder if there is one; never; or the folder of a
            run or checkpoint to go on from.
        demo_config: Old DeMo config (.yml); old KEY VALUE pairs may follow at the end of the command.
        demo_options: The old KEY VALUE pairs as one list.
    """
    from slimreid.training.display import make_display
    from slimreid.training.distributed import StoppedByMainError, join_processes, leave_processes
    from slimreid.training.memory import keep_freed_memory
    from slimreid.training.trainer import train as run

    keep_freed_memory()
    processes = join_processes()
    if not processes.main:
        logging.getLogger("slimreid").setLevel(logging.ERROR)
    elif demo_config is not None:
        _print_notes(demo_config, demo_options or [])
    try:
        result = run(config, output, resume, [make_display(console)] if processes.main else [])
    except StoppedByMainError:
        return 1
    except SlimReIDError as error:
        if processes.main:
            raise
        raise type(error)(f"process {processes.rank}: {error}") from error
    except KeyboardInterrupt:
        if processes.main:
            _print_stopped(output)
        return 130
    finally:
        leave_processes()
    if processes.main:
        _print_result(result, output)
    return 0


def _print_stopped(output: Path) -> None:
    from slimreid.training.checkpoint import CheckpointStore
    from slimreid.training.failures import what_is_left

    saved = CheckpointStore(output).exists
    again = f", go on with --output {output} --resume auto" if saved else ""
    logger.info("stopped; %s%s", what_is_left(saved), again)


def _print_notes(demo_config: Path, pairs: list[str]) -> None:
    """Say which old options had no effect or are not known."""
    from slimreid.compat.demo import read_demo_options
    from slimreid.compat.demo_arguments import read_demo_file

    for note in read_demo_options(read_demo_file(demo_config, pairs)).notes():
        console.print(f"{demo_config.name}: {note}", markup=False, soft_wrap=True)


def _print_result(result: dict[str, Any], output: Path) -> None:
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
        console.print(f"note: {result['note']}")
    console.print(f"model: {output / 'model.safetensors'}", soft_wrap=True)
