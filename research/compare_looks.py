"""Models on other looks against the first of them, over the same people: from results, without any data.

    python research/compare_looks.py full=F0.json,F1.json,F2.json slim=S0.json,S1.json,S2.json
    python research/compare_looks.py research/results/other_looks/*-market1501-600-700.json --markdown

Files are those that research/other_looks.py writes; several joined by commas are seeds of one model, whose
figures and average precisions are their means. --plot writes a picture of all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from look_results import LookResult, over_seeds, read_result
from look_tables import markdown, print_results
from looks_plot import looks_plot

from slimreid.cli.console import ending_in_one_line, say
from slimreid.visual.style import save_picture


def read_group(word: str) -> LookResult:
    """FILE, FILE,FILE or NAME=FILE,FILE; raises `DataError` naming the file that is wrong."""
    name, sign, files = word.partition("=")
    if not sign or Path(word).exists():
        name, files = "", word
    return over_seeds([read_result(Path(file)) for file in files.split(",")], name)


@ending_in_one_line
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="+", metavar="[NAME=]FILE[,FILE...]")
    parser.add_argument("--markdown", action="store_true", help="print tables as Markdown")
    parser.add_argument("--plot", type=Path, default=None, help="write a picture, .png or .svg")
    options = parser.parse_args(arguments)
    results = [read_group(word) for word in options.results]
    if options.markdown:
        say(markdown(results))
    else:
        print_results(results)
    if options.plot:
        save_picture(looks_plot(results), options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
