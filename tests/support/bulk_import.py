"""Stands in for the bulk import of a Milvus cluster: it fetches Parquet files from its bucket, a folder."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow.parquet as pq
from pymilvus import MilvusClient


class Cluster:
    """Import jobs over HTTP, as Milvus answers; the lines go into Milvus Lite, which has no import of its own."""

    def __init__(self, bucket: Path, milvus: str) -> None:
        self.bucket, self.milvus = bucket, milvus
        self.jobs: dict[str, dict] = {}
        self.looks = 1
        """How often a job is looked at before it is done."""
        self.failing = ""
        """Reason for which jobs fail; '' = they do not."""
        self.authorization = ""

    def answer(self, what: str, asked: dict) -> dict:
        if what == "create":
            number = str(len(self.jobs) + 1)
            (paths,) = asked["files"]
            self.jobs[number] = {
                "jobId": number,
                "collectionName": asked["collectionName"],
                "state": "Importing",
                "path": paths[0],
                "looks": 0,
                # Read at once: what becomes of the file later does not matter to a job.
                "lines": pq.read_table(self.bucket / paths[0]).to_pylist(),
            }
            return {"jobId": number}
        if what == "describe":
            return self._look(self.jobs[asked["jobId"]])
        found = [job for job in self.jobs.values() if job["collectionName"] == asked["collectionName"]]
        first = (asked["currentPage"] - 1) * asked["pageSize"]
        return {"records": [self._look(job) for job in found[first : first + asked["pageSize"]]]}

    def _look(self, job: dict) -> dict:
        job["looks"] += 1
        if job["state"] == "Importing" and job["looks"] > self.looks:
            if self.failing:
                job |= {"state": "Failed", "reason": self.failing}
            else:
                client = MilvusClient(uri=self.milvus)
                client.insert(job["collectionName"], job["lines"])
                client.close()
                job |= {"state": "Completed", "importedRows": len(job["lines"])}
        return {name: value for name, value in job.items() if name not in ("lines", "looks")}


@contextmanager
def serve_bulk_import(bucket: Path, milvus: str) -> Iterator[tuple[str, Cluster]]:
    """The address of such a server on the loopback, and what it knows."""
    cluster = Cluster(bucket, milvus)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cluster.authorization = self.headers["Authorization"]
            what = self.path.removeprefix("/v2/vectordb/jobs/import/")
            text = json.dumps({"code": 0, "data": cluster.answer(what, asked)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", cluster
    finally:
        server.shutdown()
        server.server_close()
