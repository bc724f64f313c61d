"""Images from elsewhere: an HTTP server on the loopback, and a bucket that stands in for S3."""

import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry, known_implementations

import slimreid
from slimreid.bulk.embedder import FETCHERS, READERS
from slimreid.data.manifest import find_manifest
from support.bulk import assert_same_rows, read_rows, write_bulk_set

MODALITIES = ("rgb", "nir", "tir")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Model, manifest, and the rows that its files give."""
    folder = tmp_path_factory.mktemp("addresses")
    model, manifest = write_bulk_set(folder, times=1)
    slimreid.embed_dataset(manifest, model, folder / "out")
    return model, manifest, read_rows(folder / "out")


class SlowServer(SimpleHTTPRequestHandler):
    """Counts how many requests wait for it at once."""

    waiting, most = 0, 0

    def do_GET(self):
        SlowServer.waiting += 1
        SlowServer.most = max(SlowServer.most, SlowServer.waiting)
        time.sleep(0.02)
        super().do_GET()
        SlowServer.waiting -= 1

    def log_message(self, *_):
        pass


@pytest.fixture
def server(work):
    """The address of a web server that has the images."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), partial(SlowServer, directory=str(work[1].parent)))
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    made.server_close()


class Bucket(MemoryFileSystem):
    """Objects in memory, reached as those of S3 are."""

    protocol = "s3"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("s3://"))


@pytest.fixture
def bucket(work, monkeypatch):
    """The address of a bucket that has the images."""
    monkeypatch.setitem(_registry, "s3", Bucket)
    folder = work[1].parent
    files = Bucket()
    for path in folder.rglob("*.png"):
        files.pipe_file(f"images/set/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return "s3://images/set"


def embed_addresses(work, root, out, changed=None):
    """Rows by id where every path is an address below `root`; `changed`: {(column, row): address}."""
    model, manifest, _ = work
    options = pa_csv.ConvertOptions(
        strings_can_be_null=True, column_types={"split": pa.string(), "x_time": pa.string()}
    )
    table = pa_csv.read_csv(manifest, convert_options=options)
    for name in MODALITIES:
        paths = [None if path is None else f"{root}/{path}" for path in table[name].to_pylist()]
        for (column, row), address in (changed or {}).items():
            if column == name:
                paths[row - 2] = address
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(paths, pa.string()))
    out.mkdir()
    pq.write_table(table, out / "long.parquet")
    slimreid.embed_dataset(find_manifest(out / "long.parquet"), model, out / "rows")
    return read_rows(out / "rows")


def comparable(rows):
    """Without what must differ: where the files are, and how a store says that it has none."""
    return {n: {k: v for k, v in row.items() if k not in ("images", "error")} for n, row in rows.items()}


@pytest.mark.parametrize("kind", ["server", "bucket"])
def test_addresses_give_the_rows_of_files(work, kind, request, tmp_path):
    found = embed_addresses(work, request.getfixturevalue(kind), tmp_path / kind)
    assert_same_rows(comparable(found), comparable(work[2]))
    assert [n for n, row in found.items() if row["status"] != "ok"] == [7]
    assert "nowhere" in found[7]["error"], "the object that is not there is named"


def test_many_images_are_fetched_at_once(work, server, tmp_path):
    SlowServer.most = 0
    embed_addresses(work, server, tmp_path / "out")
    assert READERS < SlowServer.most <= FETCHERS


def test_what_cannot_be_fetched_is_a_row_with_a_status(work, server, bucket, tmp_path, monkeypatch):
    monkeypatch.setitem(known_implementations, "gs", {"class": "nowhere.Files", "err": "install gcsfs"})
    (work[1].parent / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n torn")
    (work[1].parent / "empty.png").touch()
    wrong = {
        10: (f"{server}/nothing.png", "nothing.png: cannot be read"),
        11: (f"{server}/torn.png", "torn.png: not a JPEG, PNG, TIFF, BMP or WebP image"),
        12: (f"{server}/empty.png", "empty.png: the file is empty"),
        13: ("http://127.0.0.1:9/x.png", "127.0.0.1:9/x.png: cannot be read"),
        14: (f"{bucket}/nothing.png", "s3://images/set/nothing.png: cannot be read"),
        15: (
            "gs://images/x.png",
            "gs://images/x.png: reading from gs:// needs another package (install gcsfs)",
        ),
        16: ("memory://images/x.png", "memory://images/x.png: addresses begin with s3://"),
        17: ("github://a:b@/x.png", "addresses begin with s3://"),
    }
    changed = {("nir", row): address for row, (address, _) in wrong.items()}
    found = embed_addresses(work, bucket, tmp_path / "out", changed)
    for row, (_, error) in wrong.items():
        assert (found[row]["status"], found[row]["feature"], found[row]["hash"]) == ("unreadable", None, "")
        assert error in found[row]["error"]
    others = {n: row for n, row in found.items() if n not in wrong}
    assert_same_rows(comparable(others), comparable({n: work[2][n] for n in others}))
