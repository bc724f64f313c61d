"""What all tests share: small image files, and where the golden numbers lie."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]


def write_image(path: Path, size: tuple[int, int] = (8, 16), seed: int | None = None) -> Path:
    """A small image file (width, height), made of smooth noise that depends on the path or the seed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(abs(hash(path.name)) % 2**32 if seed is None else seed)
    coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


@pytest.fixture(name="write_image")
def _write_image() -> Callable[..., Path]:
    return write_image


def write_csv(path: Path, header: str, *rows: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(name="write_csv")
def _write_csv() -> Callable[..., Path]:
    return write_csv


def write_small_set(folder: Path) -> Path:
    """A clean tri-spectral dataset of 4 training and 3 test identities in 2 cameras; its manifest."""
    rows = []
    for identity in range(7):
        splits = ("train",) if identity < 4 else ("query", "gallery")
        for camera in (1, 2):
            for number in range(2):
                paths = []
                for name in ("rgb", "nir", "tir"):
                    path = f"{name}/{identity}_{camera}_{number}.png"
                    write_image(folder / path, (16, 32), seed=identity * 100 + camera * 10 + number)
                    paths.append(path)
                rows += [f"{split},{identity},{camera},,{','.join(paths)}" for split in splits]
    return write_csv(folder / "manifest.csv", "split,identity,camera,scene,rgb,nir,tir", *rows)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny finished run of `sdtps` in three spectra; its data lies beside it in `set`."""
    from slimreid.training.trainer import train
    from training.run_cases import make_config, write_set

    folder = tmp_path_factory.mktemp("trained")
    manifest = write_set(folder / "set", origin="real rgb, simulated nir/tir")
    train(make_config(manifest), folder / "run")
    return folder / "run"


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    """The small dataset in a folder of its own; its manifest."""
    return write_small_set(tmp_path)


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


@pytest.fixture(scope="session")
def parity() -> Path:
    """The folder of golden numbers; tests that need it are skipped where it is absent."""
    folder = ROOT.parent / "shared" / "parity"
    if not folder.is_dir():
        pytest.skip("the golden numbers (../shared/parity) are not here")
    return folder


@pytest.fixture
def browser_page() -> Iterator[tuple[Any, list[str]]]:
    """A page of phone size in headless Chromium, and the list of what it complained about."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium, args=[*quiet, "--disable-sync", "--disable-quic"]
        )
        page = browser.new_page(viewport={"width": 390, "height": 844})
        complaints: list[str] = []
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield page, complaints
        browser.close()
