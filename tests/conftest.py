"""What all tests share: small image files, a tiny finished run, a browser."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support import order, seeds, skips
from support.browser import PHONE, open_chromium, watch
from support.files import write_csv, write_image

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the plugins of the suite."""
    pluginmanager.register(order)
    pluginmanager.register(seeds)
    pluginmanager.register(skips)


def pytest_configure(config: pytest.Config) -> None:
    """Where tests run, make bf16 safe as every command does."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        from slimreid.devices import guard_amx

        guard_amx()


@pytest.fixture(name="write_image")
def _write_image() -> Callable[..., Path]:
    return write_image


@pytest.fixture(name="write_csv")
def _write_csv() -> Callable[..., Path]:
    return write_csv


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny finished run of `sdtps` in three modalities; its data lies beside it in `set`."""
    from slimreid.training.loop import train
    from support.runs import make_config, write_set

    folder = tmp_path_factory.mktemp("trained")
    manifest = write_set(folder / "set", origin="real rgb, simulated nir/tir")
    train(make_config(manifest), folder / "run")
    return folder / "run"


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported model, slimmed in the backbone, of two modalities with cameras; its run lies beside it in `run`."""
    from slimreid.exporting.export import export
    from support.models import SLIM, write_random_model
    from support.runs import write_set

    folder = tmp_path_factory.mktemp("exported")
    manifest = write_set(folder / "set", missing=True)
    export(write_random_model(folder / "run", manifest, *SLIM, modalities=("rgb", "tir")), folder / "onnx")
    return folder / "onnx"


@pytest.fixture(scope="session", autouse=True)
def traced_once(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """Exporting the same model again takes the graphs of the first time, in all processes of the tests."""
    from slimreid.exporting import export
    from support.traces import remembering

    base = tmp_path_factory.getbasetemp()
    traces = (base.parent if hasattr(pytestconfig, "workerinput") else base) / "traces"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "export_graph", remembering(export.export_graph, traces))
        yield


@pytest.fixture
def ready_graphs(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting takes the graphs of `exported`: tracing is what takes the time."""
    from slimreid.exporting import export
    from slimreid.exporting.graphs import read_graph
    from slimreid.modalities import subset_name

    def ready(model, subset):
        return read_graph(exported, f"graph-{subset_name(subset, model.modalities)}.onnx")

    monkeypatch.setattr(export, "export_graph", ready)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """`torch.compile` without memory of earlier tests: it gives up on code that it compiled too often."""
    import torch

    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    """The small dataset without validation, in a folder of its own; its manifest."""
    from support.runs import write_set

    return write_set(tmp_path, val=False)


@pytest.fixture(scope="session")
def load_benchmark() -> Callable[[str], ModuleType]:
    """Imports a file of `benchmarks` by name.

    Its folder is on the path only meanwhile: some files there are called like folders of tests.
    """

    def load(name: str) -> ModuleType:
        folder = str(ROOT / "benchmarks")
        sys.path.insert(0, folder)
        try:
            return importlib.import_module(name)
        finally:
            sys.path.remove(folder)

    return load


@pytest.fixture
def browser_page() -> Iterator[tuple[Any, list[str]]]:
    """A page of phone size in headless Chromium, and the list of what it complained about."""
    with open_chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        yield page, watch(page)
