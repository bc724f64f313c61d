"""`slimreid report`: one page about one or several trained models."""

from __future__ import annotations

from slimreid.cli.console import say
from slimreid.cli.options.measuring import ReportOptions
from slimreid.files import check_writable
from slimreid.progress import progress
from slimreid.visual.html.report import write_report
from slimreid.visual.html.run import gather_run, run_names


def report(options: ReportOptions) -> None:
    """Write one self-contained HTML page: metrics, curves, examples, commands to reproduce it."""
    names = run_names(options.models)
    out = options.out
    check_writable(out)
    gathered = [
        gather_run(path, name, options.data)
        for path, name in progress(list(zip(options.models, names, strict=True)), "evaluating models")
    ]
    write_report(gathered, out)
    say(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
