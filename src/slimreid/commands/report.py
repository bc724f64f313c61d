"""`slimreid report`: one page about one or several runs."""

from __future__ import annotations

from pathlib import Path

from slimreid.console import console, progress
from slimreid.errors import ConfigError


def report(runs: list[Path], out: Path = Path("report.html"), data: Path | None = None) -> None:
    """Write one self-contained HTML page about runs: figures, curves, examples, how to do it again.

    Args:
        runs: Folders of runs, or model files; the others are compared with the first.
        out: The page.
        data: Manifest to measure on; default: the data of each run.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out {out}: a report is a page; call it .html")
    from slimreid.files import check_writable
    from slimreid.visual.report import write_report
    from slimreid.visual.report_run import gather_run, run_names

    names = run_names(runs)
    check_writable(out)
    gathered = [
        gather_run(path, name, data)
        for path, name in progress(list(zip(runs, names, strict=True)), "reading and measuring runs")
    ]
    write_report(gathered, out)
    console.print(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)", markup=False, soft_wrap=True)
