"""A pytest plugin: a test may be skipped only for a reason listed here; any other skip fails the run."""

from __future__ import annotations

import pytest

NO_CHROMIUM = "Chromium is not installed (apt-get install chromium)"
NO_GPU = "there is no GPU"
NOT_LINUX = "needs Linux"
NOT_GLIBC = "needs glibc"
ALLOWED = frozenset({NO_CHROMIUM, NO_GPU, NOT_LINUX, NOT_GLIBC})

_unlisted: list[str] = []


def pytest_sessionstart() -> None:
    _unlisted.clear()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _judge(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _judge(report)


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if reason not in ALLOWED:
        _unlisted.append(f"{report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _unlisted and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unlisted:
        terminalreporter.section("skipped for a reason that tests/support/skips.py does not list", red=True)
        for line in _unlisted:
            terminalreporter.write_line(line)
