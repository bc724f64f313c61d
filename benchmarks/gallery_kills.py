"""Kill writers of a gallery many times, at random steps and at random moments; every gallery must be whole.

    python benchmarks/gallery_kills.py --kills 500

Each time a process enrols, merges, removes, undoes, computes features anew and forgets on a small gallery,
and is killed (SIGKILL) at a step of SQLite's machine or of writing the sidecar, or after a while by the
clock, which also hits it within a commit. Afterwards the gallery must be in the state before or after the
operation that was cut off, pass every check, answer searches and take new rows. Exits with 1 at the first
that does not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.gallery_kills import check_after_kill, expected_states, run_child


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    reached: Counter[int] = Counter()
    by_clock = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        states = expected_states(folder)
        started = time.perf_counter()
        code, done, steps = run_child(folder / "whole.gallery", None)
        seconds = time.perf_counter() - started
        check_after_kill(folder / "whole.gallery", done, states)
        for number in range(options.kills):
            place = folder / f"{number}.gallery"
            clock = bool(number % 2)
            moment = float(rng.uniform(0, seconds)) if clock else int(rng.integers(1, steps))
            code, done, _ = run_child(place, None if clock else int(moment), moment if clock else None)
            if code not in (0, -signal.SIGKILL):
                print(f"kill {number}: the process ended with {code}")
                return 1
            try:
                check_after_kill(place, done, states)
            except AssertionError as error:
                print(f"kill {number} at {moment}: {error}")
                return 1
            reached[done] += 1
            by_clock += clock and code != 0
    print(f"{options.kills} kills, {by_clock} of them by the clock: every gallery was as before or after")
    print("operations done before the kill:", dict(sorted(reached.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
