"""The service under attack: nothing but refusals, nothing shown, nothing written, well afterwards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote_to_bytes

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slimreid.gallery.gallery import Gallery
from slimreid.serve.tokens import TokenFile
from support.services import URL, Served, copy_gallery, files_of, picture, serve

REQUESTS = 2000
ALLOWED = {
    "people.gallery",
    "people.gallery-wal",
    "people.gallery-shm",
    "people.gallery.index",
    "people.gallery.service",
}


@pytest.fixture(scope="module")
def attacked(made_gallery, tmp_path_factory):
    place = copy_gallery(made_gallery, tmp_path_factory.mktemp("attacked"))
    with serve(place, with_tokens=True) as found:
        yield found


def check_answer(status: int, text: str, what: object) -> None:
    assert status < 500 or status == 503, (what, text)
    assert "Traceback" not in text, what
    assert "site-packages" not in text, what
    assert "/serve/" not in text, what


def check_healthy(served: Served) -> None:
    """The service works, the gallery is whole, and nothing lies about."""
    client = served.client
    client.headers.clear()
    client.cookies.clear()
    headers = served.headers("admin")
    assert client.get("/v1/ready").status_code == 200
    answer = client.post("/v1/search", files=files_of({"rgb": picture(1)}), headers=headers)
    assert answer.status_code == 200
    assert len(answer.json()["answers"][0]["matches"]) >= 6
    assert served.service.batcher.reserved == 0
    place = Path(served.service.store.place)
    with Gallery(place) as gallery:
        assert gallery.store.check() == []
    assert {path.name for path in place.parent.iterdir()} <= ALLOWED
    assert {path.name for path in served.service.settings.state.iterdir()} <= {
        "tokens.json",
        "jobs",
        "images",
    }


def send(served: Served, attack) -> tuple[int, str]:
    """Send a request as it is, past the client's own checks."""
    path, _, query = attack.path.partition("?")
    headers = [(b"host", b"127.0.0.1:8000"), (b"content-length", str(len(attack.body)).encode())]
    own = {
        name.lower().encode("latin-1"): value.encode("latin-1", "replace")
        for name, value in attack.headers.items()
    }
    headers = [pair for pair in headers if pair[0] not in own] + list(own.items())
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": attack.method,
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 5000),
        "server": ("127.0.0.1", 8000),
    }
    answers: list[dict] = []

    async def run() -> None:
        sent = [{"type": "http.request", "body": attack.body, "more_body": False}]

        async def receive() -> dict:
            return sent.pop() if sent else {"type": "http.disconnect"}

        async def answer(message: dict) -> None:
            answers.append(message)

        await served.client.app(scope, receive, answer)

    served.client.portal.call(run)
    body = b"".join(message.get("body", b"") for message in answers)
    return answers[0]["status"], body.decode("utf-8", "replace")


def test_two_thousand_hostile_requests(attacked: Served, load_benchmark: Callable[[str], ModuleType]):
    known = TokenFile(attacked.service.settings.tokens)
    revoked = known.add("revoked", "admin")
    known.revoke("revoked")
    attacks = load_benchmark("service_attacks").attacks(1, ("rgb", "nir", "tir"), attacked.tokens, [revoked])
    seen: Counter[int] = Counter()
    for attack in itertools.islice(attacks, REQUESTS):
        status, text = send(attacked, attack)
        check_answer(status, text, attack)
        seen[status] += 1
    assert {401, 403, 404, 405, 409, 413, 422} <= set(seen), "the attacks reach every kind of refusal"
    check_healthy(attacked)


def test_requests_made_from_the_openapi_document(attacked: Served):
    schema = schemathesis.openapi.from_dict(attacked.client.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 30
    sent = []
    cases = st.one_of([operation.as_strategy() for operation in operations if "events" not in operation.path])

    @settings(
        max_examples=60,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def attack(case):
        options = case.as_transport_kwargs(base_url=URL)
        options["headers"] = {**dict(options.get("headers") or {}), **attacked.headers("viewer")}
        options["cookies"] = None
        if isinstance(options.get("data"), (bytes, str)):
            options["content"] = options.pop("data")
        try:
            request = attacked.client.build_request(**options)
            request.read()
        except (AttributeError, TypeError, ValueError):
            return  # the client library cannot write this one down
        answer = attacked.client.send(request)
        sent.append(case)
        check_answer(answer.status_code, answer.text, case)

    attack()
    assert len(sent) > 40, "most of the 60 cases can be written down and are sent"
    check_healthy(attacked)
