"""New lines by the bucket of a Milvus cluster: a Parquet file is put there, and the server fetches it.

This is Milvus's bulk import over HTTP (`/v2/vectordb/jobs/import`), which pymilvus offers as `bulk_import` in
a part that wants the clients of two cloud vendors. It adds lines and replaces none, so a job that outlives
the process which asked for it must have ended before anything is taken back.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import fs

from slimreid.errors import ConfigError
from slimreid.gallery.errors import GalleryError

BETWEEN = 1.0
"""Seconds between two looks at a job."""
TIMEOUT = 60.0
"""Seconds that the server may take for an answer."""
_PAGE = 100
_ENDED = ("Completed", "Failed")


class Jobs:
    """The import jobs of a server."""

    def __init__(self, uri: str, token: str, place: str) -> None:
        self._uri, self._token, self._place = uri.rstrip("/"), token, place

    def start(self, collection: str, file: str) -> str:
        """Ask the server to fetch a file from its bucket; the number of the job."""
        return str(self._ask("create", collectionName=collection, files=[[file]])["jobId"])

    def wait(self, job: str, meanwhile: Callable[[], None]) -> int:
        """Wait for the end of a job, calling `meanwhile` again and again; the lines it added.

        Raises `GalleryError` with the server's reason where it failed.
        """
        while True:
            found = self._ask("describe", jobId=job)
            if found["state"] == "Failed":
                reason = found.get("reason") or "no reason given"
                raise GalleryError(
                    f"{self._place}: the server could not import ({reason}); "
                    "is --bucket the bucket that the cluster itself uses?"
                )
            if found["state"] == "Completed":
                return int(found["importedRows"])
            meanwhile()
            time.sleep(BETWEEN)

    def wait_for_all(self, collection: str, meanwhile: Callable[[], None]) -> None:
        """Wait until no job of a collection is at work, whoever asked for it."""
        while any(state not in _ENDED for state in self._states(collection)):
            meanwhile()
            time.sleep(BETWEEN)

    def _states(self, collection: str) -> list[str]:
        found: list[str] = []
        page = 1
        while True:
            records = self._ask("list", collectionName=collection, pageSize=_PAGE, currentPage=page)[
                "records"
            ]
            found += [record["state"] for record in records]
            if len(records) < _PAGE:
                return found
            page += 1

    def _ask(self, what: str, **values: object) -> dict[str, Any]:
        address = f"{self._uri}/v2/vectordb/jobs/import/{what}"
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        try:
            with urlopen(Request(address, json.dumps(values).encode(), head), timeout=TIMEOUT) as answer:
                found = json.loads(answer.read())
            if found["code"] != 0:
                raise GalleryError(f"{self._place}: bulk import was refused ({found.get('message')})")
            data: dict[str, Any] = found["data"]
        except (URLError, OSError, ValueError, KeyError, TypeError) as error:
            raise GalleryError(
                f"{self._place}: no bulk import at {address} ({error}); without --bucket rows are sent "
                "piece by piece"
            ) from None
        return data


class Bucket:
    """The bucket of a cluster, where files for bulk import are put."""

    def __init__(self, address: str, gallery: str) -> None:
        """`address`: s3://BUCKET/FOLDER or gs://…; raises `ConfigError` for one that cannot be used."""
        try:
            self._files, place = fs.FileSystem.from_uri(address)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ConfigError(
                f"--bucket {address}: cannot be used ({error}); write s3://BUCKET/FOLDER"
            ) from None
        parts = urlsplit(address)
        self.address = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"  # without keys
        self._folder = f"{place.rstrip('/')}/slimreid-import/{gallery}"
        # The server knows paths within its bucket; a local folder stands for a bucket as a whole.
        self._root = (
            f"{place.rstrip('/')}/" if self._files.type_name == "local" else f"{place.split('/')[0]}/"
        )

    def clear(self) -> None:
        """Remove files that a process left which died."""
        with self._explained():
            self._files.delete_dir_contents(self._folder, missing_dir_ok=True)

    def put(self, lines: Sequence[dict[str, Any]], columns: pa.Schema) -> str:
        """Write lines into a new file; its path within the bucket."""
        path = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        with self._explained():
            self._files.create_dir(self._folder, recursive=True)
            with self._files.open_output_stream(path) as file:
                pq.write_table(pa.Table.from_pylist(list(lines), schema=columns), file)
        return path.removeprefix(self._root)

    def remove(self, path: str) -> None:
        """Remove a file again."""
        with self._explained():
            self._files.delete_file(f"{self._root}{path}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise GalleryError(f"{self.address}: cannot be written ({error}); may you write there?") from None
