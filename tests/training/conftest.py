"""Fixtures of the training tests: a small set of images, and a run on it without anything special."""

import io

import pytest
from rich.console import Console

from slimreid.training.callbacks.display import make_display
from slimreid.training.loop import train
from support.runs import make_config, write_set


@pytest.fixture(scope="session")
def manifest(tmp_path_factory):
    """Shared by all tests of training: do not change it."""
    return write_set(tmp_path_factory.mktemp("set"))


@pytest.fixture(scope="session")
def plain(manifest, tmp_path_factory):
    """A finished run without anything special, and what it returned."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    text = io.StringIO()
    callback = make_display(Console(file=text, width=300))
    result = train(make_config(manifest), folder, callbacks=[callback])
    return folder, result, text.getvalue()
