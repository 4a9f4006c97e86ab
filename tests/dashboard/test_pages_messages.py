"""Pages of messages: what each role may do, and what is refused before a cluster is asked; here none answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.client.typed import SCHEMA_ID, Topic, avro_codec, protobuf_codec
from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.roles import Role
from orbitmq.testing import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.dashboards import OrbitDashboard, Page, Visitor
from tests.support.process import wait_until

PASSWORD = "correct horse"
ID = "7F00000100002A9F0000000000000000"
LOOKS = (
    "messages", "messages?topic=T", "messages/export?topic=T", f"messages/T/{ID}", f"messages/T/{ID}/body", "tail",
    "tail?topic=T", "find?q=x", "trace?q=x", "delayed", "half", "dead-letters", "dead-letters/g",
    "dead-letters/g/export",
)  # fmt: skip
OPERATORS_LOOKS = ("send", f"send?like={ID}", f"messages/T/{ID}/again")
OPERATORS_CHANGES = {
    "send": {"topic": "T", "body": "x"},
    f"messages/T/{ID}/again": {"how": "retry", "group": "g"},
    "dead-letters/g/again": {"id": ID},
    f"half/{ID}/check": {},
}
NO_ANSWER = 503


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitDashboard]:
    accounts: Path = tmp_path_factory.mktemp("accounts") / "dashboard.toml"
    for role in Role:
        put(accounts, role.word, role, PASSWORD)
    with OrbitDashboard("127.0.0.1:1", "--accounts", accounts, "--sample", 0) as running:
        yield running


@pytest.fixture(scope="module")
def visitors(dashboard: OrbitDashboard) -> dict[Role, Visitor]:
    made = {role: dashboard.visitor() for role in Role}
    for role, visitor in made.items():
        visitor.log_in(role.word, PASSWORD)
    return made


def token(visitor: Visitor) -> str:
    """From the button to log out, which is on every page."""
    return next(dict(form.fields)["csrf"] for form in visitor.get("find").forms if form.action == "/logout")


@pytest.mark.parametrize("path", LOOKS)
def test_everybody_may_look(visitors: dict[Role, Visitor], path: str) -> None:
    for visitor in visitors.values():
        page = visitor.get(path)
        assert page.status == NO_ANSWER, path
        assert "no name server responds" in page.title


@pytest.mark.parametrize("path", OPERATORS_LOOKS)
def test_forms_that_change_something_are_for_operators(visitors: dict[Role, Visitor], path: str) -> None:
    assert [visitors[role].get(path).status for role in Role] == [403, NO_ANSWER, NO_ANSWER]


@pytest.mark.parametrize("path", OPERATORS_CHANGES)
def test_viewers_send_and_redeliver_nothing(visitors: dict[Role, Visitor], path: str) -> None:
    fields = OPERATORS_CHANGES[path]
    statuses = [visitors[role].post(path, {**fields, "csrf": token(visitors[role])}).status for role in Role]
    assert statuses == [403, NO_ANSWER, NO_ANSWER]
    assert [visitors[role].post(path, fields).status for role in Role] == [403] * 3, "a form without its token"


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("send", {"body": "x"}, "topic is missing"),
        ("send", {"topic": "T"}, "body is missing"),
        ("send", {"topic": "T", "body": "x", "delay_level": "many"}, "delay_level is 'many'"),
        ("send", {"topic": "T", "body": "y" * ((1 << 20) + 1)}, "body has 1048577 characters, more than 1048576"),
        ("dead-letters/g/again", {}, "id is missing"),
        ("dead-letters/g/again", {"id": ID, "how": "burn"}, "how is 'burn'"),
        ("dead-letters/g/again", {"id": ID, "how": "topic"}, "to is missing"),
        ("dead-letters/g/again", {"which": "all", "tag": "a"}, "which is all"),
        ("dead-letters/g/again", {"which": "all", "rate": "0"}, "rate is '0'"),
        ("dead-letters/g/again", {"id": ID, "rate": "5"}, "rate is for all dead letters"),
        (f"messages/T/{ID}/again", {}, "how is ''"),
    ],
)
def test_a_bad_field_is_named(visitors: dict[Role, Visitor], path: str, fields: dict[str, str], named: str) -> None:
    visitor = visitors[Role.OPERATOR]
    page = visitor.post(path, {**fields, "csrf": token(visitor)})
    assert (page.status, named in page.title) == (400, True), page.title


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("messages?topic=T&begin=soon", "begin: 'soon' is no point in time"),
        ("messages?topic=T&rows=7", "rows is '7'"),
        ("messages?topic=T&property=city", "property is 'city'"),
        ("messages?topic=T&mark=%00", "this mark of a page cannot be read"),
        ("messages/export?topic=T&format=exe", "format is 'exe'"),
        ("tail?topic=T&queue=-1", "queue is '-1'"),
        ("tail/rows?topic=T", "mark is missing"),
        (f"messages/T/{ID}?form=pdf", "form is 'pdf'"),
        (f"messages/T/{ID}?charset=punycode", "charset is 'punycode'"),
        ("dead-letters/g?rows=0", "rows is '0'"),
        ("find?q=" + "x" * 2000, "q has 2000 characters, more than 1024"),
    ],
)
def test_a_bad_field_of_an_address_is_named(visitors: dict[Role, Visitor], path: str, named: str) -> None:
    page = visitors[Role.VIEWER].get(path)
    assert (page.status, named in page.title) == (400, True), page.title


def test_too_many_dead_letters_are_not_taken_at_once(visitors: dict[Role, Visitor]) -> None:
    visitor = visitors[Role.OPERATOR]
    fields = [("csrf", token(visitor)), *(("id", f"{number:032X}") for number in range(201))]
    page = visitor.post("dead-letters/g/again", fields)
    assert (page.status, page.title) == (400, "201 dead letters are selected; at most 200 are delivered at once")


def test_a_form_that_is_too_large_is_refused(visitors: dict[Role, Visitor]) -> None:
    visitor = visitors[Role.OPERATOR]
    fields = {"csrf": token(visitor), "topic": "T", "body": "x" * (4 << 20)}
    assert visitor.post("send", fields).status == 413


@pytest.mark.parametrize("path", ["find", "trace"])
def test_without_a_name_a_page_begins_with_its_form(visitors: dict[Role, Visitor], path: str) -> None:
    pages = [visitors[role].get(path) for role in Role]
    assert [page.status for page in pages] == [200] * 3
    assert all("orbitmq" in page.words for page in pages), "the command that tells the same"
    leads_to_send = [any(link.endswith("/send") for link in page.links) for page in pages]
    assert leads_to_send == [False, True, True]


def test_a_broker_that_does_not_answer_makes_a_list_partial_and_is_read_later() -> None:
    with Cluster(brokers=2) as running, OrbitDashboard(running.namesrv_address, "--sample", 0) as dashboard:
        running.create_topic("Orders", queues=2)
        with Producer("shop", running.namesrv_address) as producer:
            for number in range(8):  # two for each queue of either broker
                producer.send(Message("Orders", b"order", keys=f"k{number}"))
        running.disconnect(RequestCode.PULL_MESSAGE, times=None, broker="broker-b")
        page = dashboard.visitor().get("messages?topic=Orders")
        rows = page.table("Messages")
        assert "Partial: data of these nodes is missing below. broker-b" in page.words
        assert "4 shown; 4 read, 4 left" in page.words
        assert {row["Broker"] for row in rows} == {"broker-a"}
        running.heal()
        (older,) = [link for link in page.links if "mark=" in link and "export" not in link]
        rest = dashboard.visitor().get(older)
        assert "Partial" not in rest.words
        assert {row["Broker"] for row in rest.table("Messages")} == {"broker-b"}
        assert len({row["Keys"] for row in [*rows, *rest.table("Messages")]}) == 8


def test_bodies_of_avro_and_protobuf_are_shown_by_the_schema_of_their_topic() -> None:
    avro = Topic("Orders", avro_codec({"type": "record", "name": "O", "fields": [{"name": "item", "type": "string"}]}))
    protobuf = Topic("Times", protobuf_codec(Timestamp))
    with Cluster() as running, OrbitDashboard(running.namesrv_address, "--sample", 0) as dashboard:
        with Producer("shop", running.namesrv_address) as producer:
            for topic in (avro, protobuf):
                running.create_topic(topic.name, 1)
                producer.register_schema(topic.name, topic.schema)
            sent = [
                producer.send(avro.message({"item": "book"})),
                producer.send(protobuf.message(Timestamp(seconds=5))),
            ]
            unread = Message("Orders", b"\xff\x00", properties={SCHEMA_ID: avro.schema.id})
            sent.append(producer.send(unread))
        visitor = dashboard.visitor()
        whole, wrong = visitor.get("messages?topic=Orders&order=oldest").table("Messages")
        assert '{ "item": "book" }' in whole["Body"]
        assert "/wA=" in wrong["Body"]
        pages = [visitor.get(f"messages/{one.queue.topic}/{one.offset_msg_id}") for one in sent]
        assert "Format: avro;" in pages[0].words
        assert "Format: protobuf;" in pages[1].words
        assert '"1970-01-01T00:00:05Z"' in pages[1].words
        assert f"it is not read by schema {avro.schema.id}: no data of the schema" in pages[2].words
        assert '"item"' in visitor.get(f"messages/Orders/{sent[0].offset_msg_id}/unfolded").words
        plain = visitor.get(f"messages/Orders/{sent[0].offset_msg_id}?form=hex").words
        assert avro.message({"item": "book"}).body.hex() in plain


def test_all_dead_letters_are_delivered_again_with_progress_and_can_be_stopped() -> None:
    count, rate = 400, 40
    with Cluster() as running, OrbitDashboard(running.namesrv_address, "--sample", 0) as dashboard:
        for topic in ("%DLQ%billing", "%RETRY%billing", "Copies"):
            running.create_topic(topic, 1)
        with Producer("dead", running.namesrv_address) as producer:
            producer.send_batch([Message("%DLQ%billing", b"%d" % number) for number in range(count)])
        page = dashboard.visitor().get("dead-letters/billing")
        plan = page.submit("again", which="all", rate=rate)
        assert plan.title == "Confirm this change"
        begun = plan.submit("plans/")
        assert re.search(rf"In progress: \d+ of {count} messages\.", begun.words), begun.words
        begun.submit("/stop")
        ended = wait_until(lambda: _ended(begun.visitor.get(begun.url)), 60, "it stops")
        sent = re.search(rf"(\d+) of {count} messages were sent", ended.words)
        assert sent is not None
        assert 0 < int(sent[1]) < count
        assert running.message_count("%RETRY%billing") == int(sent[1])
        assert "To undo the change: orbitmq msg undo" in ended.words
        copies = dashboard.visitor().get("dead-letters/billing").submit("again", which="all", how="topic", to="Copies")
        done = copies.submit("plans/")
        wait_until(lambda: running.message_count("Copies") == count, 60, "all were copied")
        assert f"{count} of {count} messages were sent" in done.visitor.get(done.url).words


def _ended(page: Page) -> Page | None:
    return None if "In progress" in page.words else page
