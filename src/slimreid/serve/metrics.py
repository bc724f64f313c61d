"""Figures about the service, as Prometheus reads them."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds."""
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
Labels = tuple[tuple[str, str], ...]


class Histogram:
    """How many values lie below each of some bounds."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: Labels) -> list[str]:
        """As Prometheus writes it."""
        total, lines = 0, []
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            lines.append(_line(f"{name}_bucket", (*labels, ("le", bound)), total))
        return [*lines, _line(f"{name}_sum", labels, self.sum), _line(f"{name}_count", labels, total)]


class Metrics:
    """Counters of one service; threads may share them."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests = self.streams = 0
        """Under way."""
        self.refused = 0
        self.embedded = 0
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str, int], int] = defaultdict(int)
        self._seconds: dict[str, Histogram] = defaultdict(lambda: Histogram(BUCKETS))
        self._batches = Histogram(_BATCHES)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer; `route` is the pattern, not the address: addresses hold ids and are many."""
        known = method if method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS") else "other"
        with self._lock:
            self._answers[known, route, status] += 1
            self._seconds[route].add(seconds)

    def count_batch(self, samples: int) -> None:
        """Count samples that were embedded together."""
        with self._lock:
            self._batches.add(samples)
            self.embedded += samples

    def text(self, gauges: Mapping[str, float]) -> str:
        """Everything, in the text format of Prometheus; `gauges`: figures of this moment."""
        with self._lock:
            lines = ["# TYPE slimreid_requests_total counter"]
            for (method, route, status), count in sorted(self._answers.items()):
                labels = (("method", method), ("route", route), ("status", str(status)))
                lines.append(_line("slimreid_requests_total", labels, count))
            lines.append("# TYPE slimreid_request_seconds histogram")
            for route, histogram in sorted(self._seconds.items()):
                lines += histogram.lines("slimreid_request_seconds", (("route", route),))
            lines.append("# TYPE slimreid_batch_samples histogram")
            lines += self._batches.lines("slimreid_batch_samples", ())
            for name, total in (("refused", self.refused), ("embedded", self.embedded)):
                lines += [f"# TYPE slimreid_{name}_total counter", _line(f"slimreid_{name}_total", (), total)]
        for name, value in gauges.items():
            lines += [f"# TYPE slimreid_{name} gauge", _line(f"slimreid_{name}", (), value)]
        return "\n".join(lines) + "\n"


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {value:g}" if labels else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
