"""Who may do what: every route, every role, wrong and revoked tokens, other sites."""

from __future__ import annotations

import json

import pytest
from fastapi.routing import APIRoute

from slimreid.errors import ConfigError, DataError
from slimreid.serve.access import COOKIE, Bucket
from slimreid.serve.routes import editing, enrolling, rows, searching, system
from slimreid.serve.service import open_service
from slimreid.serve.settings import ServiceLimits, Settings
from slimreid.serve.tokens import ROLES, TokenFile
from support.services import Served, copy_gallery, serve

NEEDED = {
    "anyone": (
        "GET /v1/health",
        "GET /v1/ready",
        "GET /v1/session",
        "POST /v1/session",
        "DELETE /v1/session",
    ),
    "viewer": (
        "GET /v1/status",
        "GET /v1/metrics",
        "POST /v1/embed",
        "POST /v1/search",
        "POST /v1/identify",
        "POST /v1/patches",
        "GET /v1/identities",
        "GET /v1/cameras",
        "GET /v1/rows",
        "GET /v1/rows/{id}",
        "GET /v1/rows/{id}/thumbnail",
        "GET /v1/rows/{id}/image",
        "GET /v1/clusters",
        "GET /v1/log",
        "GET /v1/calibration",
        "GET /v1/jobs",
        "GET /v1/jobs/{id}",
        "GET /v1/jobs/{id}/events",
    ),
    "editor": (
        "POST /v1/enrol",
        "POST /v1/identities/rename",
        "POST /v1/identities/merge",
        "POST /v1/identities/split",
        "POST /v1/rows/assign",
        "POST /v1/rows/remove",
        "POST /v1/undo",
        "POST /v1/jobs",
        "POST /v1/jobs/{id}/samples",
        "POST /v1/jobs/{id}/finish",
        "DELETE /v1/jobs/{id}",
    ),
    "admin": ("POST /v1/calibration",),
}
"""Role -> routes that need it, or a higher one."""
ROUTES = sorted((*route.split(), role) for role, routes in NEEDED.items() for route in routes)


@pytest.fixture(scope="module")
def guarded(made_gallery, tmp_path_factory):
    with serve(copy_gallery(made_gallery, tmp_path_factory.mktemp("guarded")), with_tokens=True) as found:
        yield found


def address(path: str) -> str:
    return path.replace("{id}", "1" if "rows" in path else "0" * 16)


def ask(served: Served, method: str, path: str, **options):
    return served.client.request(method, address(path), **options)


def test_table_of_routes_is_complete(guarded: Served):
    document = guarded.client.app.openapi()["paths"]
    there = {
        (method.upper(), path.replace("{row}", "{id}").replace("{job}", "{id}"))
        for path, methods in document.items()
        for method in methods
    }
    assert there == {(method, path) for method, path, _ in ROUTES}
    hidden = [
        route.path
        for router in (
            system.router,
            rows.router,
            editing.router,
            enrolling.job_router,
            searching.search_routes(("rgb",)),
            enrolling.enrol_routes(("rgb",)),
        )
        for route in router.routes
        if not isinstance(route, APIRoute) or not route.include_in_schema
    ]
    assert not hidden, "a route that is not documented is not tested either"


@pytest.mark.parametrize(("method", "path", "needed"), ROUTES)
def test_every_route_asks_for_its_role(guarded: Served, method: str, path: str, needed: str):
    nobody = ask(guarded, method, path)
    wrong = ask(guarded, method, path, headers={"Authorization": "Bearer srid_wrong"})
    if needed == "anyone":
        assert nobody.status_code not in (401, 403)
        return
    assert nobody.status_code == 401
    assert wrong.status_code in (401, 429), "429 after too many guesses"
    assert nobody.json()["name"] == "NotLoggedInError"
    for role in ROLES:
        status = ask(guarded, method, path, headers=guarded.headers(role)).status_code
        assert (status == 403) == (ROLES.index(role) < ROLES.index(needed)), role
        assert status != 401


def test_address_that_is_no_route_is_closed_too(guarded: Served):
    assert guarded.client.get("/v1/secret").status_code == 401
    assert guarded.client.get("/v1/secret", headers=guarded.headers("viewer")).status_code == 404


def test_only_an_admin_erases_for_good(guarded: Served):
    body = {"rows": [1], "forget": True, "dry_run": True}
    answers = [guarded.client.post("/v1/rows/remove", json=body, headers=guarded.headers(r)) for r in ROLES]
    assert [answer.status_code for answer in answers] == [403, 403, 200]


def test_revoked_token_is_refused_from_the_next_request_on(place):
    with serve(place, with_tokens=True) as served:
        headers = served.headers("viewer")
        login = served.client.post("/v1/session", json={"token": served.tokens["viewer"]})
        assert login.status_code == 200
        assert served.client.get("/v1/status", headers=headers).status_code == 200
        assert served.client.get("/v1/status").status_code == 200, "by the cookie"
        TokenFile(served.service.settings.tokens).revoke("viewer")
        for options in ({"headers": headers}, {}):
            assert served.client.get("/v1/status", **options).status_code == 401
        TokenFile(served.service.settings.tokens).add("viewer", "admin")
        assert served.client.get("/v1/status").status_code == 401, "a new token of the same name is not it"


def test_tokens_that_vanish_open_nothing(place):
    with serve(place, with_tokens=True) as served:
        assert served.client.get("/v1/status").status_code == 401
        served.service.settings.tokens.unlink()
        assert served.client.get("/v1/status").status_code == 401


def test_token_is_kept_as_a_hash_that_only_the_owner_reads(tmp_path):
    tokens = TokenFile(tmp_path / "s" / "tokens.json")
    secret = tokens.add("anna", "editor")
    text = tokens.path.read_text()
    assert secret not in text
    assert secret.removeprefix("srid_") not in text
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    found = TokenFile(tokens.path).find(secret)
    assert found is not None
    assert (found.name, found.role) == ("anna", "editor")
    assert tokens.find(secret[:-1]) is None
    with pytest.raises(DataError, match="already"):
        tokens.add("anna", "viewer")
    with pytest.raises(DataError, match="did you mean 'anna'"):
        tokens.revoke("ana")


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"name": "a", "role": "king", "hash": "", "created": 1}]']
)
def test_damaged_tokens_are_said(tmp_path, text: str):
    (tmp_path / "tokens.json").write_text(text)
    with pytest.raises(DataError, match="the tokens cannot be read"):
        TokenFile(tmp_path / "tokens.json").tokens()


def test_other_addresses_need_a_token(place, tmp_path):
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(ConfigError, match="there is no token"):
            open_service(str(place), None, Settings(tmp_path / "state", host=host))


def test_cookie_cannot_be_read_by_scripts_nor_sent_by_other_sites(place):
    with serve(place, with_tokens=True, secure=True) as served:
        cookie = served.client.post("/v1/session", json={"token": served.tokens["editor"]}).headers[
            "set-cookie"
        ]
        assert cookie.startswith(f"{COOKIE}=")
        assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Secure", "Path=/"))
        assert served.tokens["editor"] not in cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:8000"}, 200),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
    ],
)
@pytest.mark.parametrize("with_tokens", [False, True])
def test_other_sites_cannot_make_a_browser_change_anything(place, headers, status: int, with_tokens: bool):
    with serve(place, with_tokens=with_tokens) as served:
        if with_tokens:
            served.client.post("/v1/session", json={"token": served.tokens["editor"]})
        body = {"old": "ben", "new": "bob", "dry_run": True}
        assert served.client.post("/v1/identities/rename", json=body, headers=headers).status_code == status


def test_cookie_alone_changes_nothing(place):
    with serve(place, with_tokens=True) as served:
        served.client.post("/v1/session", json={"token": served.tokens["editor"]})
        body = {"old": "ben", "new": "bob"}
        assert served.client.post("/v1/identities/rename", json=body).status_code == 403
        same = {"Sec-Fetch-Site": "same-origin"}
        assert served.client.delete("/v1/session", headers=same).json()["name"] is None
        assert served.client.get("/v1/status").status_code == 401


def test_name_of_another_site_is_refused(served: Served):
    for host in ("evil.example", "evil.example:8000", "", "127.0.0.1.evil.example", "[::1", "a" * 5000):
        assert served.client.get("/v1/status", headers={"Host": host}).status_code == 403
        assert served.client.get("/", headers={"Host": host}).status_code == 403
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000"):
        assert served.client.get("/v1/status", headers={"Host": host}).status_code == 200


def test_every_answer_carries_the_headers_of_safety(served: Served):
    for path in ("/", "/v1/health", "/v1/nothing", "/nothing", "/v1/rows/1/thumbnail"):
        headers = served.client.get(path).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_log_names_the_token(place):
    with serve(place, with_tokens=True) as served:
        client = served.as_("editor")
        client.post("/v1/identities/rename", json={"old": "ben", "new": "bob"})
        assert client.get("/v1/log").json()["entries"][0]["by"] == "editor"


def test_too_many_requests_of_one_token_are_refused(place):
    with serve(place, with_tokens=True, limits=ServiceLimits(rate=0.001, burst=3)) as served:
        first = [served.client.get("/v1/status", headers=served.headers("viewer")) for _ in range(4)]
        assert [answer.status_code for answer in first] == [200, 200, 200, 429]
        assert int(first[-1].headers["retry-after"]) >= 1
        assert served.client.get("/v1/status", headers=served.headers("admin")).status_code == 200
        assert served.client.get("/v1/health").status_code == 200


def test_guessing_tokens_is_slowed_down(place):
    with serve(place, with_tokens=True) as served:
        served.service.access._failures.rate = 1e-6  # a slow machine gets no more guesses
        codes = [
            served.client.post("/v1/session", json={"token": f"srid_{n}"}).status_code for n in range(30)
        ]
        assert codes[0] == 401
        assert codes[-1] == 429


def test_bucket_forgets_callers_it_has_not_seen_for_long():
    bucket = Bucket(1.0, 2)
    assert [bucket.take("a") for _ in range(3)] == [True, True, False]
    assert all(bucket.take(str(n)) for n in range(10_001))
    assert bucket.take("a")


def test_session_says_who_is_asking(place):
    with serve(place, with_tokens=True) as served:
        assert served.client.get("/v1/session").json() == {"login": True, "name": None, "role": None}
        found = served.client.get("/v1/session", headers=served.headers("viewer")).json()
        assert found == {"login": True, "name": "viewer", "role": "viewer"}
        text = json.dumps(served.client.post("/v1/session", json={"token": "x"}).json())
        assert "NotLoggedInError" in text
