"""Who gets in, as whom, and what a browser is told: a running dashboard whose cluster does not answer."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.dashboard import app
from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.app import Dashboard, DashboardSettings, local_path
from orbitmq.dashboard.guard import HEADERS
from orbitmq.dashboard.roles import Role
from tests.support.commands import orbitmq
from tests.support.dashboards import OrbitDashboard
from tests.support.process import free_port

PASSWORD = "correct horse"
NOBODY = "127.0.0.1:1"


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "dashboard.toml"
    for role in Role:
        put(path, role.word, role, PASSWORD)
    return path


@pytest.fixture(scope="module")
def guarded(accounts: Path) -> Iterator[OrbitDashboard]:
    with OrbitDashboard(NOBODY, "--accounts", accounts, "--sample", 0) as dashboard:
        yield dashboard


@pytest.fixture(scope="module")
def open_one() -> Iterator[OrbitDashboard]:
    with OrbitDashboard(NOBODY, "--sample", 0) as dashboard:
        yield dashboard


def test_a_cluster_that_does_not_answer_is_named_with_a_remedy(open_one: OrbitDashboard) -> None:
    page = open_one.visitor().get("")
    assert page.status == 503
    assert "no name server responds (cannot connect to 127.0.0.1:1: Connection refused)" in page.title
    assert "-n HOST:PORT" in page.words


def test_a_page_speaks_the_language_of_the_browser(open_one: OrbitDashboard) -> None:
    for accepted, tag in (("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"), ("en-US", "en"), ("", "en")):
        assert f'<html lang="{tag}"' in open_one.visitor().get("", headers={"Accept-Language": accepted}).text


def test_an_error_and_its_remedy_are_in_the_language_of_the_browser(open_one: OrbitDashboard) -> None:
    page = open_one.visitor().get("", headers={"Accept-Language": "zh-CN"})
    assert "没有 NameServer 应答（无法连接 127.0.0.1:1：连接被拒绝）" in page.title
    assert "请用 -n HOST:PORT" in page.words


def test_an_address_without_a_page_leads_to_the_overview_in_both_languages(open_one: OrbitDashboard) -> None:
    visitor = open_one.visitor()
    assert (visitor.get("/nowhere").status, visitor.get("/nowhere").title) == (404, "there is no page at this address")
    assert visitor.get("/nowhere", headers={"Accept-Language": "zh-CN"}).title == "这个地址没有页面"


def test_every_answer_forbids_what_comes_from_elsewhere(open_one: OrbitDashboard) -> None:
    visitor = open_one.visitor()
    for path in ("", "/", "/nowhere", "/static/page.css", "/static/../app.py", "/c/nowhere/", "/login"):
        page = visitor.get(path, follow=False)
        assert {name: page.headers.get(name) for name in HEADERS} == HEADERS, path
        assert page.headers["cache-control"] == ("public, max-age=3600" if "/static/page" in path else "no-store")
        assert "server" not in page.headers


def test_nothing_but_its_own_files_is_served(open_one: OrbitDashboard) -> None:
    for path in (
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
    ):
        connection = http.client.HTTPConnection("127.0.0.1", open_one.port, timeout=10)
        connection.request("GET", path)  # as it stands: no browser of ours would send it
        assert connection.getresponse().status == 404, path
        connection.close()


def test_only_its_own_names_are_answered_without_accounts(open_one: OrbitDashboard) -> None:
    visitor = open_one.visitor()
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""):
        for path in ("/", ""):
            assert visitor.get(path, headers={"Host": host}, follow=False).status == 421, host
    for host in ("localhost", f"LOCALHOST:{open_one.port}", "[::1]:80"):
        assert visitor.get("/", headers={"Host": host}, follow=False).status == 303


def test_a_name_that_is_allowed_is_answered() -> None:
    with OrbitDashboard(NOBODY, "--allowed-host", "Queue.example", "--sample", 0) as dashboard:
        visitor = dashboard.visitor()
        assert visitor.get("/", headers={"Host": "queue.example:443"}, follow=False).status == 303
        assert visitor.get("/", headers={"Host": "other.example"}, follow=False).status == 421


def test_nobody_sees_anything_before_the_login(guarded: OrbitDashboard) -> None:
    visitor = guarded.visitor()
    page = visitor.get("audit?x=1", follow=False)
    assert (page.status, page.headers["location"]) == (303, "/login?next=/c/local/audit%3Fx%3D1")
    assert visitor.get("audit", headers={"HX-Request": "true"}, follow=False).status == 401
    assert visitor.post("plans/x", {}, follow=False).status == 401
    assert visitor.get("/c/nowhere/", follow=False).status == 303, "not even which clusters there are"
    visitor.cookies[f"orbitmq-session-{guarded.port}"] = "made-up"
    assert visitor.get("audit", follow=False).status == 303


def test_a_login_leads_to_where_it_was_asked_for(guarded: OrbitDashboard) -> None:
    visitor = guarded.visitor()
    form = visitor.get("audit")
    assert form.title == "Log in"
    page = form.submit("/login", name="admin", password=PASSWORD)
    assert (page.status, page.title) == (200, "Audit")
    assert "admin log in" not in page.words
    (line, *_) = page.table("Audit log")
    assert (line["User"], line["Role"], line["Change"], line["Outcome"]) == ("admin", "admin", "log in", "done")


def test_the_cookie_is_kept_from_scripts_and_other_sites(guarded: OrbitDashboard) -> None:
    answer = guarded.visitor().post("/login", {"name": "viewer", "password": PASSWORD}, follow=False)
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "secure" not in cookie, "it is not served over TLS"


def test_each_role_sees_what_it_may(guarded: OrbitDashboard) -> None:
    for role in Role:
        visitor = guarded.visitor()
        visitor.log_in(role.word, PASSWORD)
        page = visitor.get("audit")
        assert page.status == (200 if role is Role.ADMIN else 403)
        if role is not Role.ADMIN:
            assert page.title == f"{role.word} has the role {role.word}; this needs admin"
            assert not any(link.partition("?")[0].endswith("audit") for link in page.links)


def test_wrong_passwords_are_refused_alike_and_then_slowed_down(accounts: Path) -> None:
    with OrbitDashboard(NOBODY, "--accounts", accounts, "--sample", 0) as dashboard:
        visitor = dashboard.visitor()
        wrong = [visitor.log_in("admin", "wrong password"), visitor.log_in("nobody", PASSWORD)]
        assert [(page.status, "wrong name or password" in page.words) for page in wrong] == [(401, True)] * 2
        statuses = [visitor.log_in("admin", "wrong password").status for number in range(8)]
        assert statuses[:4] == [401, 401, 401, 401]
        assert 429 in statuses, "each further one waits twice as long"
        told = visitor.log_in("admin", PASSWORD)
        assert told.status == 429, "the right one has to wait, too"
        assert int(told.headers["retry-after"]) >= 1
        lines = [json.loads(line) for line in dashboard.audit_path.read_text().splitlines()]
        assert [line["outcome"] for line in lines] == ["refused"] * (2 + statuses.count(401))
        assert PASSWORD not in dashboard.audit_path.read_text()


def test_a_form_of_another_site_is_refused(guarded: OrbitDashboard) -> None:
    visitor = guarded.visitor()
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        page = visitor.post("/login", {"name": "admin", "password": PASSWORD}, headers=headers, follow=False)
        assert page.status == 403
    own = visitor.post("/login", {"name": "admin", "password": PASSWORD}, headers={"Origin": guarded.url}, follow=False)
    assert own.status == 303
    assert visitor.post("/logout", {}).status == 403
    assert visitor.post("/logout", {"csrf": "made up"}).status == 403
    assert visitor.get("audit").submit("/logout").title == "Log in"
    assert visitor.get("audit", follow=False).status == 303


def test_an_account_that_is_taken_away_is_out_at_once(accounts: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(accounts, tmp_path / "accounts.toml"))
    with OrbitDashboard(NOBODY, "--accounts", own, "--sample", 0) as dashboard:
        visitor = dashboard.visitor()
        visitor.log_in("admin", PASSWORD)
        assert visitor.get("audit").status == 200
        orbitmq("dashboard", "account", "admin", "--role", "viewer", "--accounts", own, typed=f"{PASSWORD}\n")
        assert visitor.get("audit", follow=False).status == 303, "another role is another login"
        visitor.log_in("admin", PASSWORD)
        assert visitor.get("audit").status == 403
        orbitmq("dashboard", "account", "admin", "--remove", "--accounts", own)
        assert visitor.get("audit", follow=False).status == 303


def test_a_new_password_ends_the_sessions_of_the_old_one_and_leaves_the_role(accounts: Path, tmp_path: Path) -> None:
    own = Path(shutil.copy(accounts, tmp_path / "accounts.toml"))
    with OrbitDashboard(NOBODY, "--accounts", own, "--sample", 0) as dashboard:
        visitor = dashboard.visitor()
        visitor.log_in("admin", PASSWORD)
        told = orbitmq("dashboard", "account", "admin", "--accounts", own, typed="another password\n")
        assert "admin may log in as admin" in told.stdout
        assert visitor.get("audit", follow=False).status == 303
        visitor.log_in("admin", "another password")
        assert visitor.get("audit").status == 200


def test_the_word_of_a_proxy_is_taken_where_it_is_named(accounts: Path) -> None:
    told = {"X-Forwarded-For": "10.1.2.3", "X-Forwarded-Proto": "https"}
    form = {"name": "admin", "password": PASSWORD}
    with OrbitDashboard(NOBODY, "--accounts", accounts, "--sample", 0, "--proxy", "127.0.0.1") as dashboard:
        behind = dashboard.visitor().post("/login", form, headers=told, follow=False)
        assert "secure" in behind.headers["set-cookie"].lower()
        (line,) = [json.loads(line) for line in dashboard.audit_path.read_text().splitlines()]
        assert line["peer"] == "10.1.2.3"
    with OrbitDashboard(NOBODY, "--accounts", accounts, "--sample", 0) as dashboard:
        alone = dashboard.visitor().post("/login", form, headers=told, follow=False)
        assert "secure" not in alone.headers["set-cookie"].lower()
        (line,) = [json.loads(line) for line in dashboard.audit_path.read_text().splitlines()]
        assert line["peer"] == "127.0.0.1"


def test_two_pages_of_a_machine_do_not_take_each_other_s_logins(guarded: OrbitDashboard, accounts: Path) -> None:
    with OrbitDashboard(NOBODY, "--accounts", accounts, "--sample", 0) as other:
        here, there = guarded.visitor(), other.visitor()
        there.cookies = here.cookies  # as a browser has them, for the name of the machine
        here.log_in("admin", PASSWORD)
        there.log_in("admin", PASSWORD)
        assert [here.get("audit").status, there.get("audit").status] == [200, 200]


def test_other_sites_may_lead_here_but_not_have_it_work(open_one: OrbitDashboard) -> None:
    visitor = open_one.visitor()

    def status(site: str, mode: str, dest: str) -> int:
        headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        return visitor.get("audit", headers=headers).status

    assert status("cross-site", "navigate", "document") == 200
    assert status("same-origin", "cors", "empty") == 200
    for mode, dest in (("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")):
        assert status("cross-site", mode, dest) == status("same-site", mode, dest) == 403


@pytest.mark.parametrize(
    ("target", "lead"),
    [
        ("/c/local/topics?x=1", "/c/local/topics?x=1"),
        ("//evil.example/", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nSet-Cookie: x=y", "/"),
        ("//[", "/"),
        ("", "/"),
    ],
)
def test_a_login_leads_nowhere_else(target: str, lead: str) -> None:
    assert local_path(target) == lead


def test_forms_are_small_and_of_one_kind(guarded: OrbitDashboard) -> None:
    visitor = guarded.visitor()
    assert visitor.post("/login", {"name": "x" * 5000}).status == 413
    assert visitor.post("/login", {"name": "x"}, headers={"Content-Type": "application/json"}).status == 415
    connection = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=10)
    connection.request("POST", "/login", b"name=\xff", {"Content-Type": "application/x-www-form-urlencoded"})
    assert connection.getresponse().status == 400
    connection.close()


def test_a_request_that_is_none_is_refused(open_one: OrbitDashboard) -> None:
    for data in (b"\x00\x01\x02\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", open_one.port), timeout=10) as peer:
            peer.sendall(data)
            assert peer.recv(100).startswith(b"HTTP/1.1 400")
    assert open_one.visitor().get("/healthz").text == "ok\n"


@pytest.mark.parametrize(
    ("options", "environment", "told"),
    [
        (["--host", "0.0.0.0"], {}, "--host 0.0.0.0 is not a loopback address"),
        (
            [],
            {"ORBITMQ_ACCESS_KEY": "admin", "ORBITMQ_SECRET_KEY": "12345678"},
            "has an account, which the page would lend",
        ),
        (["--tls-cert", "x"], {}, "--tls-cert and --tls-key belong together"),
        (["--accounts", "nowhere.toml"], {}, "nowhere.toml: No such file"),
        (["--all-contexts"], {}, "there is no context"),
    ],
)
def test_what_would_be_open_to_others_does_not_start(
    options: list[str], environment: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {**environment, "XDG_CONFIG_HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    result = orbitmq("dashboard", "-n", NOBODY, "--port", 0, *options, code=2)
    assert told in result.stderr
    assert "12345678" not in result.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        port = taken.getsockname()[1]
        result = orbitmq("dashboard", "-n", NOBODY, "--port", port, code=7)
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


@pytest.mark.parametrize(
    ("query", "headers", "status", "cookie", "target"),
    [
        ("language=zh_CN&next=/login", {}, 303, "orbitmq-language=zh_CN", "/login"),
        ("theme=dark&next=/c/a/topics%3Ftype%3Devery", {}, 303, "orbitmq-theme=dark", "/c/a/topics?type=every"),
        ("language=zh_CN&next=//elsewhere.example", {}, 303, "orbitmq-language=zh_CN", "/"),
        ("language=zh_CN&next=/", {"Sec-Fetch-Site": "cross-site"}, 303, "", "/"),
        ("language=klingon&next=/", {}, 400, "", None),
    ],
)
def test_a_choice_is_kept_by_the_browser_and_leads_nowhere_else(
    guarded: OrbitDashboard, query: str, headers: dict[str, str], status: int, cookie: str, target: str | None
) -> None:
    page = guarded.visitor().get(f"/choose?{query}", follow=False, headers=headers)
    assert (page.status, page.headers.get("location")) == (status, target)
    kept = page.headers.get("set-cookie", "")
    assert kept.partition(";")[0] == cookie
    assert not kept or ("HttpOnly" in kept and "SameSite=lax" in kept)


async def test_all_templates_are_compiled_before_their_pages_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "COMPILE_PAUSE_SECONDS", 0)
    dashboard = Dashboard(DashboardSettings([]))
    await dashboard.compile_templates()
    assert dashboard.templates.cache is not None
    assert {name for _, name in dashboard.templates.cache} == set(dashboard.templates.list_templates())
