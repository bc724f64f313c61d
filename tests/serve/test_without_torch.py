"""`pip install 'slimreid[serve]'`: a gallery is made, searched and served with an exported model, without torch."""

from __future__ import annotations

import json
from pathlib import Path

from support.exported import write_exported_model
from support.runs import write_set
from support.without_extras import run_without_torch

CODE = """
import json
from pathlib import Path
from fastapi.testclient import TestClient
from slimreid.cli.app import main
from slimreid.serve.http.app import create_app
from slimreid.serve.service import open_service
from slimreid.serve.settings import Settings

data, model, place, image = sys.argv[1:]
for words in (
    ["create", place, "--model", model],
    ["enrol", place, data, "--split", "train"],
    ["search", place, image, "--json", "--top", "1"],
):
    if code := main(["gallery", *words]):
        sys.exit(code)
service = open_service(place, Path(model), Settings(Path(place + ".service"), decoders=1))
with TestClient(create_app(service), base_url="http://127.0.0.1:8000") as client:
    status = client.get("/v1/status").json()["model"]
    files = {"rgb": ("a.png", Path(image).read_bytes())}
    found = client.post("/v1/identify", files=files, data={"k": 1})
    patches = client.post("/v1/patches", files=files)
print(json.dumps([status, found.json(), patches.status_code]))
print([name for name in EXTRA_OF if name in sys.modules], file=sys.stderr)
"""


def test_a_gallery_is_made_and_served_without_torch(tmp_path: Path):
    data = write_set(tmp_path / "set", val=False)
    model = write_exported_model(tmp_path / "model", data)
    image = data.parent / "rgb" / "0_1_0.png"
    done = run_without_torch(
        CODE, str(data), str(model), str(tmp_path / "g.gallery"), str(image), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    status, found, patches = json.loads(done.stdout.splitlines()[-1])
    assert status["engine"] == "onnxruntime"
    assert status["precision"] == "float32"
    (answer,) = found["answers"]
    assert answer["matches"][0]["row"]["identity"] == "id0"
    assert patches == (200 if status["patches"] else 404)
