"""Pages of brokers, topics, name servers, access and configuration over two brokers: what each shows and changes, who
may, what a wrong field is told, what is asked of the cluster for it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbitmq.admin.cluster import ClusterBroker, Replica
from orbitmq.admin.elections import ElectedReplica
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.client.sync import Producer
from orbitmq.dashboard import accounts
from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.dashboard.pages import topics
from orbitmq.dashboard.roles import Role
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import Message
from orbitmq.net.remoting import Remoting
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.dashboards import OrbitDashboard, Page, Visitor

PASSWORD = "correct horse"
TOPICS = 5000


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        started.create_topic("Orders", queues=4)
        started.create_topic("%RETRY%billing", queues=1)
        with Producer("shop", started.namesrv_address) as producer:
            for number in range(20):
                producer.send(Message("Orders", b"order %d" % number))
        yield started


@pytest.fixture(scope="module")
def site(running: Cluster) -> Iterator[OrbitDashboard]:
    with OrbitDashboard(running.namesrv_address) as started:
        yield started


@pytest.fixture
def visitor(site: OrbitDashboard) -> Visitor:
    return site.visitor()


def done(plan: Page, **typed: Any) -> Page:
    """Confirm it: every step is read back."""
    assert plan.title == "Confirm this change", plan.words
    made = plan.submit("plans/", **typed)
    assert {row["Outcome"] for row in made.table("Steps")} <= {"confirmed", "done", "unchanged"}, made.words
    return made


def refused(page: Page, status: int, *words: str) -> None:
    assert page.status == status, page.words
    for word in words:
        assert word in page.title, page.title


def address(visitor: Visitor, broker: str = "broker-a") -> str:
    return next(row["Address"] for row in visitor.get("brokers").table("Brokers") if row["Broker"] == broker)


# ------------------------------------------------------------------------------------------------------------- brokers


def test_brokers_and_what_one_tells_in_words_and_key_by_key(visitor: Visitor) -> None:
    rows = visitor.get("brokers").table("Brokers")
    assert [row["Broker"] for row in rows] == ["broker-a", "broker-b"]
    assert sum(int(row["Produced today"]) for row in rows) == 20
    page = visitor.get(f"brokers/{address(visitor)}")
    figures = {row["Metric"]: row["Value"] for row in page.table("Requests and storage")}
    assert " of " in figures["Pending sends"]
    keys = {row["Key"]: row["Value"] for row in page.table("Runtime keys")}
    assert keys["brokerVersionDesc"] in page.words
    settings = {row["Key"]: row["Value"] for row in page.table("Settings")}
    assert settings["brokerName"] == "broker-a"
    narrow = visitor.get(f"brokers/{address(visitor)}?containing=TPS")
    assert {row["Key"] for row in narrow.table("Runtime keys")} == {key for key in keys if "tps" in key.lower()}
    assert len(visitor.get("brokers/broker-b").table("Settings")) == len(settings), "by its name, too"


def test_a_link_leads_the_page_to_no_broker_that_nobody_registered(visitor: Visitor, running: Cluster) -> None:
    """The name server would answer: it is no broker of the cluster."""
    for path in ("", "/settings", "/consumption"):
        refused(visitor.get(f"brokers/{running.namesrv_address}{path}"), 404, "there is no broker")
    page = visitor.get("new-topic")
    refused(page.submit("new-topic", topic="Elsewhere", broker=running.namesrv_address), 400, "broker is")


def test_only_settings_that_were_edited_are_changed_and_the_difference_is_seen(visitor: Visitor) -> None:
    here = f"brokers/{address(visitor)}/settings"
    plan = visitor.get(here).submit("settings/change", {"set:fileReservedTime": "1234"})
    (step,) = plan.table("Steps")
    assert (step["Subject"], step["Before"], step["After"]) == ("fileReservedTime", "72", "1234")
    assert f"Set fileReservedTime at broker-a ({address(visitor)})." in plan.words, "names keep their letters"
    done(plan)
    (row,) = visitor.get("config").table("Settings that differ between masters")
    assert (row["Setting"], row["broker-a"], row["broker-b"]) == ("fileReservedTime", "1234", "72")
    everywhere = visitor.get(here).submit("settings/change", {"set:fileReservedTime": "72", "where": "masters"})
    assert [row["Before"] for row in everywhere.table("Steps")] == ["1234", "72"]
    done(everywhere)
    assert "All settings are the same" in visitor.get("config").words
    assert "Nothing was changed" in visitor.get(here).submit("settings/change").words
    refused(visitor.get(here).submit("settings/change", {"set:nothingLikeIt": "1"}), 404, "there is no setting")
    refused(visitor.get(here).submit("settings/change", {"set:storePathRootDir": "/"}), 409, "storePathRootDir")
    refused(visitor.get(here).submit("settings/change", {"set:fileReservedTime": "1", "where": "?"}), 400, "where")


def test_writing_is_forbidden_and_allowed_again(visitor: Visitor) -> None:
    here = f"brokers/{address(visitor, 'broker-b')}"
    done(visitor.get(here).submit("writing", writing="forbid"))
    assert "Writes allowed by name servers no" in visitor.get(here).words
    done(visitor.get(here).submit("writing", writing="allow"))
    assert "Writes allowed by name servers yes" in visitor.get(here).words
    refused(visitor.get(here).submit("writing", writing="perhaps"), 400, "writing")


def test_a_broker_is_cleaned(visitor: Visitor) -> None:
    here = f"brokers/{address(visitor)}"
    for what in ("expired-queues", "unused-topics", "expired-log"):
        done(visitor.get(here).submit("cleaning", what=what))
    refused(visitor.get(here).submit("cleaning", what="everything"), 400, "what")


# -------------------------------------------------------------------------------------------------------------- topics


def test_a_topic_is_made_altered_put_in_order_and_deleted(visitor: Visitor) -> None:
    name = "Made"
    done(visitor.get("new-topic").submit("new-topic", topic=name, write_queues=2, read_queues=2, ordered="on"))
    (row,) = [row for row in visitor.get("topics").table("Topics") if row["Topic"] == name]
    assert (row["Kind"], row["Brokers"], row["Queues"], row["Permission"]) == ("in order", "2", "4", "RW-")
    page = visitor.get(f"topics/{name}")
    assert "broker-a:2;broker-b:2" in page.words
    done(page.submit("alter", write_queues="", read_queues=4, perm="", broker="broker-b"))
    page = visitor.get(f"topics/{name}")
    found = {row["Broker"]: (row["Write queues"], row["Read queues"]) for row in page.table("Configuration")}
    assert found == {"broker-a": ("2", "2"), "broker-b": ("2", "4")}
    assert "Brokers differ" in page.words
    (seen,) = visitor.get("config").table("Topics and groups that differ between masters")
    assert (seen["Name"], "readQueues: 4" in seen["broker-b"]) == (name, True)
    assert "differs" in next(row["Permission"] for row in visitor.get("topics").table("Topics") if row["Topic"] == name)
    done(page.submit("order", setting=""))
    plan = visitor.get(f"topics/{name}").submit("delete")
    refused(plan.submit("plans/", typed="another"), 409, f"you did not type {name}")
    done(visitor.get(f"topics/{name}").submit("delete"), typed=name)
    refused(visitor.get(f"topics/{name}"), 404, f"there is no topic {name}")


def test_fields_that_are_wrong_are_named(visitor: Visitor) -> None:
    page = visitor.get("new-topic")
    for values, word in [
        ({"topic": ""}, "topic is missing"),
        ({"topic": "a b"}, "a b"),
        ({"topic": "x" * 128}, "topic has 128"),
        ({"topic": "T", "write_queues": "0"}, "write_queues"),
        ({"topic": "T", "read_queues": "many"}, "read_queues"),
        ({"topic": "T", "perm": "RX"}, "perm"),
    ]:
        refused(page.submit("new-topic", values), 400, word)
    refused(page.submit("new-topic", topic="TBW102"), 409, "TBW102")
    refused(visitor.get("topics/Orders").submit("order", setting="somewhere"), 400, "order setting")
    for query, word in [
        ("sort=size", "sort"),
        ("from=-1", "from"),
        ("type=FOO", "type"),
        ("containing=" + "x" * 128, ""),
    ]:
        refused(visitor.get(f"topics?{query}"), 400, word)


def test_one_topic_with_its_queues_and_consumers(visitor: Visitor, running: Cluster) -> None:
    page = visitor.get("topics/Orders")
    queues = page.table("Queues")
    assert sum(int(row["Messages"]) for row in queues) == 20
    assert {(row["Broker"], row["Queue"]) for row in queues} == {
        (broker, str(number)) for broker in running.broker_names for number in range(4)
    }
    assert any(link.endswith("/messages?topic=Orders") for link in page.links)
    assert "No group consumes this topic" in page.words


def test_the_list_is_filtered_sorted_and_told_with_what_topics_hold(visitor: Visitor) -> None:
    plain = visitor.get("topics")
    assert "TBW102" not in plain.words
    assert [row["Topic"] for row in visitor.get("topics?containing=bw1&type=every").table("Topics")] == ["TBW102"]
    assert {row["Kind"] for row in visitor.get("topics?type=SYSTEM").table("Topics")} == {"system topics"}
    (row,) = [row for row in plain.table("Topics") if row["Topic"] == "Orders"]
    assert row["Messages"] == "–", "asked for when the list stands"
    target = next(link for link in plain.links if "volumes=1" in link)
    (row,) = [row for row in visitor.get(target).table("Topics") if row["Topic"] == "Orders"]
    assert (row["Messages"], row["Produced in 24 h"]) == ("20", "20")
    turned = visitor.get("topics?type=every&sort=-topic").table("Topics")
    ordered = [next(iter(row.values())).lower() for row in turned]
    assert ordered == sorted(ordered, reverse=True)


def test_a_topic_of_a_group_has_its_page(visitor: Visitor) -> None:
    """Its name holds what stands for something else in an address."""
    page = visitor.get("topics?type=RETRY&containing=billing&sort=queues")
    target = next(link for link in page.links if "billing" in link and "topics/" in link)
    assert visitor.get(target).title == "%RETRY%billing"


def test_the_list_asks_the_same_for_one_topic_and_for_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted where they leave. What the topics of one page hold is asked for those alone."""
    monkeypatch.setattr(topics, "SNAPSHOT_WAIT_SECONDS", 60.0)
    with Cluster() as running:
        few, _ = asyncio.run(_asked_for(running, "topics"))
        running._call(_put_topics(running, TOPICS))
        many, page = asyncio.run(_asked_for(running, "topics"))
        assert many == few
        assert f"1–100 of {TOPICS:,}" in page.words
        volumes, page = asyncio.run(_asked_for(running, "topics?volumes=1&from=4950"))
    assert f"4951–{TOPICS} of {TOPICS:,}" in page.words
    assert {RequestCode(code).name: number for code, number in (volumes - many).items()} == {
        "GET_BROKER_CLUSTER_INFO": 1,
        "GET_TOPIC_STATS_INFO": 50,
        "VIEW_BROKER_STATS_DATA": 50,
    }


async def _put_topics(running: Cluster, number: int) -> None:
    """As many requests to make them would take seconds."""
    for broker in running._all_running():
        for one in range(number):
            broker.topics.put(TopicConfig(f"Many{one:05}", 1, 1))
        await broker.announced()


async def _asked_for(running: Cluster, path: str) -> tuple[Counter[int], Page]:
    """The requests that this page takes, the first time it is looked at, and the page."""
    asked = Counter[int]()

    class Counting:
        def before(self, address: str, request: Command, /) -> None:
            asked[request.code] += 1

        def after(self, address: str, request: Command, response: Command, /) -> None:
            pass

    place = DashboardCluster(
        "here", ClusterAccess([running.namesrv_address], lambda: Remoting(hooks=[Counting()])), sample_seconds=0
    )
    try:
        page = await _page(Dashboard(DashboardSettings([place])), f"/c/here/{path}")
    finally:
        await place.stop()
    return asked, page


async def _page(dashboard: Dashboard, target: str) -> Page:
    path, _, query = target.partition("?")
    sent: list[Any] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await dashboard.asgi(scope, receive, send)
    assert sent[0]["status"] == 200, sent
    body = b"".join(message.get("body", b"") for message in sent)
    return Page(Visitor("", ""), sent[0]["status"], target, {"content-type": "text/html"}, body)


def test_a_broker_that_dies_makes_the_list_partial_and_no_figure_smaller() -> None:
    with Cluster(brokers=2) as running:
        running.create_topic("Orders", queues=4)
        with Producer("shop", running.namesrv_address) as producer:
            producer.send(Message("Orders", b"order"))
        for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO):
            running.disconnect(code, times=None, broker="broker-b")
        _, page = asyncio.run(_asked_for(running, "topics?volumes=1"))
        (row,) = page.table("Topics")
        assert "Partial: data of these nodes is missing below. broker-b" in page.words
        assert (row["Queues"], row["Lag"], row["Messages"], row["Produced in 24 h"]) == ("–",) * 4
        _, page = asyncio.run(_asked_for(running, "brokers"))
        (_, silent) = page.table("Brokers")
        assert (silent["Version"], silent["Produced today"]) == ("does not respond", "–")
        assert "broker-b" in page.words.partition("Partial")[2]


def test_slaves_stand_under_their_master_with_how_far_they_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def member(number: int, address: str, **more: Any) -> ClusterBroker:
        return ClusterBroker("C", "broker-a", number, "slave" if number else "master", address, answers=True, **more)

    def replica(number: int, **more: Any) -> Replica:
        whole: dict[str, Any] = {"behind_bytes": 0, "connected": None, "refusal": None, **more}
        return Replica("C", "broker-a", number, "", None, None, None, **whole)

    away = ClusterBroker("C", "broker-b", 0, "master", "10.0.0.9:1", answers=False, registered_at_ms=1)
    slaves = {
        1: {"behind_bytes": 2048},
        2: {"connected": False},
        3: {"refusal": "another log"},
        4: {"behind_bytes": None},
    }

    async def listed(_: Session) -> Result[ClusterBroker]:
        return Result([*(member(number, f"10.0.0.{number}:1") for number in range(5)), away])

    async def replicas(_: Session) -> Result[Replica]:
        return Result([replica(number, **more) for number, more in slaves.items()])

    monkeypatch.setattr("orbitmq.admin.cluster.listed", listed)
    monkeypatch.setattr("orbitmq.admin.cluster.replicas", replicas)
    with Cluster() as running:
        _, page = asyncio.run(_asked_for(running, "brokers"))
    rows = page.table("Brokers")
    assert [row["Broker"] for row in rows] == ["broker-a", *(f"broker-a:{number}" for number in slaves), "broker-b"]
    behind = [row["Replica lag"] for row in rows[:5]]
    assert behind == ["master", "2 KiB", "not connected", "not replicating: another log", "–"]
    assert rows[5]["Version"].startswith("offline, last registered")


def test_replicas_that_elect_their_master_are_listed_with_who_may_be_elected(monkeypatch: pytest.MonkeyPatch) -> None:
    async def elected(_: Session) -> Result[ElectedReplica]:
        return Result(
            [
                ElectedReplica("C", "broker-a", 0, "10.0.0.1:1", "master", 7, in_sync=True, lease_left_ms=2340),
                ElectedReplica("C", "broker-a", 2, "10.0.0.2:1", "following", 7, in_sync=False, behind_bytes=2048),
                ElectedReplica("C", "broker-a", 3, "10.0.0.3:1", problem="its log differs"),
            ]
        )

    with Cluster() as running:
        _, page = asyncio.run(_asked_for(running, "brokers"))
        assert "elect their master" not in page.words
        monkeypatch.setattr("orbitmq.admin.elections.replicas", elected)
        _, page = asyncio.run(_asked_for(running, "brokers"))
    rows = [tuple(row.values()) for row in page.table("Replicas that elect their master")]
    assert rows == [
        ("broker-a", "10.0.0.1:1", "master", "7", "yes", "master", "2.3 s", ""),
        ("broker-a:2", "10.0.0.2:1", "following", "7", "no: it cannot be elected", "2 KiB", "–", ""),
        ("broker-a:3", "10.0.0.3:1", "does not respond", "–", "–", "–", "–", "its log differs"),
    ]


# -------------------------------------------------------------------------------- name servers, configuration, access


def test_settings_and_pairs_of_name_servers(visitor: Visitor, running: Cluster) -> None:
    page = visitor.get("nameservers?key=serverChannelMaxIdleTimeSeconds")
    (row,) = page.table("Name servers")
    assert (row["Address"], row["Brokers"]) == (running.namesrv_address, "2")
    assert dict(page.form("nameservers/settings").fields)["value"] == "120"
    plan = page.submit("nameservers/settings", value="121")
    assert [(row["Before"], row["After"]) for row in plan.table("Steps")] == [("120", "121")]
    refused(page.submit("nameservers/settings", key="kvConfigPath", value="/etc/x"), 409, "kvConfigPath")
    refused(page.submit("nameservers/settings", key="nothing", value="1"), 404, "there is no setting")
    done(page.submit("nameservers/pairs", key="colour", value="blue"))
    page = visitor.get("nameservers")
    (row,) = page.table("Entries of ORDER_TOPIC_CONFIG")
    assert (row["Key"], row["Value"]) == ("colour", "blue")
    done(page.submit("pairs/remove", key="colour"))
    assert "No entry in other" in visitor.get("nameservers?namespace=other").words
    assert "No entry in " in visitor.get("nameservers").words


def test_the_cluster_is_saved_as_a_document_and_made_what_one_says(visitor: Visitor) -> None:
    saved = visitor.get("config/export?section=topics&section=groups")
    assert "attachment" in saved.headers["content-disposition"]
    document = yaml.safe_load(saved.text)
    assert [one["name"] for one in document["topics"]] == ["Orders"]
    page = visitor.get("config")
    unchanged = page.submit("config/apply", document=saved.text)
    assert {row["Outcome"] for row in unchanged.table("Steps")} <= {"unchanged"}
    document["topics"].append({"name": "Written", "readQueues": 3, "writeQueues": 3})
    done(page.submit("config/apply", document=yaml.safe_dump(document)))
    assert [row["Read queues"] for row in visitor.get("topics/Written").table("Configuration")] == ["3", "3"]
    pruning = page.submit("config/apply", document=saved.text, prune="on")
    done(pruning, typed="delete 1")
    assert visitor.get("topics/Written").status == 404


def test_documents_that_are_wrong_are_told_so_and_fetch_nothing(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.get("config")
    refused(page.submit("config/apply", document=""), 400, "document is missing")
    refused(page.submit("config/apply", document="topics: [{nam: x}]"), 400, "document", "nam")
    refused(page.submit("config/apply", document="{"), 400, "document: no YAML")
    secret = tmp_path / "secret"
    secret.write_text("a secret of this machine")
    account = f"accounts: [{{accessKey: some-account, secret: {{file: {secret}}}}}]"
    answer = page.submit("config/apply", document=f"apiVersion: orbitmq/v1\nkind: ClusterConfig\n{account}")
    refused(answer, 400, "this page does not read secrets")
    refused(visitor.get("config/export"), 400, "section is missing")


def test_access_control_that_is_off_is_no_failure(visitor: Visitor) -> None:
    page = visitor.get("access")
    assert "Access control is off at broker-a" in page.words
    assert "Partial" not in page.words
    assert "No accounts: access control is off" in page.words


# --------------------------------------------------------------------------------------------------------------- roles


@pytest.fixture(scope="module")
def guarded(running: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitDashboard]:
    path = tmp_path_factory.mktemp("accounts") / "dashboard.toml"
    with pytest.MonkeyPatch.context() as cheap:
        cheap.setattr(accounts, "COST", 16)
        for role in Role:
            put(path, role.word, role, PASSWORD)
    with OrbitDashboard(running.namesrv_address, "--accounts", path) as started:
        yield started


ALL_MAY_SEE = ("brokers", "brokers/broker-a", "brokers/broker-a/consumption", "topics", "topics/Orders", "nameservers")
ADMINS_SEE = ("brokers/broker-a/settings", "new-topic", "account")
ADMINS_CHANGE = (
    "brokers/broker-a/settings/change", "brokers/broker-a/writing", "brokers/broker-a/cleaning", "new-topic",
    "topics/Orders/alter", "topics/Orders/order", "topics/Orders/delete", "nameservers/settings", "nameservers/pairs",
    "nameservers/pairs/remove", "account", "account/delete", "access/white-list", "config/apply",
)  # fmt: skip


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_who_is_no_administrator_sees_everything_and_changes_nothing(guarded: OrbitDashboard, role: str) -> None:
    visitor = guarded.visitor()
    visitor.log_in(role, PASSWORD)
    for path in (*ALL_MAY_SEE, "access", "config", "config/export?section=topics"):
        page = visitor.get(path)
        assert page.status == 200, path
        assert not [form.action for form in page.forms if form.method == "post" and form.action != "/logout"], path
    for path in ADMINS_SEE:
        refused(visitor.get(path), 403, "this needs admin")
    for path in ADMINS_CHANGE:
        refused(visitor.post(path, {}), 403, "this needs admin")


def test_an_administrator_sees_the_forms(guarded: OrbitDashboard) -> None:
    visitor = guarded.visitor()
    visitor.log_in("admin", PASSWORD)
    for path in ADMINS_SEE:
        assert visitor.get(path).status == 200
    assert visitor.get("topics/Orders").form("delete").method == "post"
    for path in ADMINS_CHANGE:
        refused(visitor.post(path, {}), 403, "not from a page of your session")
