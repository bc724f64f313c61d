"""`slimreid serve` and `slimreid serve token`, as a person types them."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from slimreid.gallery.gallery import Gallery
from slimreid.inference.load import load
from support.commands import run_command
from support.exported import write_exported_model
from support.service_process import TESTS, free_port

PEM = TESTS / "support" / "loopback.pem"
"""A certificate for the loopback, and its key; of no use anywhere else."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An empty gallery and its exported model."""
    folder = tmp_path_factory.mktemp("served")
    model = write_exported_model(folder / "model")
    Gallery.create(folder / "a.gallery", load(model)).close()
    return folder / "a.gallery", model


def test_tokens_are_made_listed_and_revoked(made, capsys, tmp_path):
    def token(*words: str) -> tuple[int, str, str]:
        return run_command(
            "serve", "token", words[0], made[0], *words[1:], "--state", tmp_path, capsys=capsys
        )

    code, out, _ = token("add", "--role", "editor", "--name", "gate")
    secret = out.splitlines()[0]
    assert code == 0
    assert secret.startswith("srid_")
    assert "not shown again" in out
    code, out, _ = token("list")
    assert "gate" in out
    assert "editor" in out
    assert secret not in out
    assert token("revoke", "gate")[0] == 0
    code, _, err = token("revoke", "gate")
    assert code == 1
    assert "there is no token 'gate'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--host", "0.0.0.0"], "there is no token: make one"),
        (
            ["--tls-cert", str(PEM), "--tls-key", "none.pem"],
            "none.pem: no certificate with its key (No such file",
        ),
        (["--tls-cert", __file__, "--tls-key", __file__], "no certificate with its key"),
        (["--tls-cert", str(PEM)], "go together"),
        (["--model", __file__], "test_serve.py"),
        (["--port", "70000"], "at most 65535"),
    ],
    ids=lambda value: " ".join(Path(word).name for word in value) if isinstance(value, list) else "",
)
def test_what_cannot_be_served_is_said_in_one_line(made, words, message, capsys):
    place, model = made
    code, _, err = run_command("serve", place, "--model", model, *words, capsys=capsys)
    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err


def test_https_with_a_certificate_and_an_orderly_end(made, tmp_path):
    place, model = made
    port = free_port()
    words = ["serve", place, "--model", model, "--port", port, "--state", tmp_path]
    words += ["--tls-cert", PEM, "--tls-key", PEM, "--batch", 2]
    process = subprocess.Popen(
        [sys.executable, "-m", "slimreid", *map(str, words)], stdout=subprocess.PIPE, text=True
    )
    context = ssl.create_default_context(cafile=str(PEM))

    def get(path: str) -> tuple[object, dict[str, str]]:
        with urlopen(Request(f"https://127.0.0.1:{port}{path}"), context=context, timeout=10) as answer:
            return json.loads(answer.read()), dict(answer.headers)

    try:
        for _ in range(600):
            try:
                health, headers = get("/v1/health")
                break
            except (URLError, OSError):
                assert process.poll() is None
                time.sleep(0.1)
        assert health == {"status": "ok"}
        assert (
            "max-age" in {name.lower(): value for name, value in headers.items()}["strict-transport-security"]
        )
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert f"0 rows at https://127.0.0.1:{port}" in out
