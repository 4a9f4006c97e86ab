"""Pages of messages over either system: found, browsed, watched, sent, sent again; dead letters, what waits, traces."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import queue
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.clock import SystemClock
from tests.interop.conftest import ASKED_FROM_MS, LONG_DELAY_LEVEL, System
from tests.interop.test_msg_commands import create
from tests.support.dashboards import OrbitDashboard, Page
from tests.support.java_rocketmq import JavaSystem
from tests.support.process import wait_until
from tests.support.transactions import left_alone, raw_producer

PATIENCE_S = 60
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
EVIL = "<script>alert(1)</script>\"'&"
SHOWN = 64 << 10


def fill(system: System, topic: str, messages: Sequence[Message]) -> list[str]:
    """Their offset ids."""
    with Producer(f"p-{topic}"[:100], system.namesrv_address) as producer:
        return [producer.send(one).offset_msg_id for one in messages]


def until(look: Callable[[], Page], words: str) -> Page:
    """The page once it says so."""

    def there() -> Page | None:
        page = look()
        return page if words in page.words else None

    return wait_until(there, PATIENCE_S, f"a page with {words!r}")


@contextmanager
def consuming(
    system: System, topic: str, group: str, is_good: Callable[[MessageExt], bool]
) -> Iterator[queue.Queue[str]]:
    """A group with one member; the bodies it is given."""
    given: queue.Queue[str] = queue.Queue()

    def listen(messages: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        for one in messages:
            given.put(one.body.decode("utf-8", "replace"))
        if all(map(is_good, messages)):
            return SUCCESS
        raise RuntimeError("a bug of the application")

    consumer = PushConsumer(
        group, system.namesrv_address, consume_from_where=FIRST, max_reconsume_times=1, enable_trace=True
    )
    consumer.subscribe(topic)
    consumer.set_listener(listen)
    with consumer:
        yield given


def test_a_message_is_sent_by_hand_and_found_by_every_name(
    system: System, dashboard: OrbitDashboard, label: str
) -> None:
    create(system, label)
    visitor = dashboard.visitor()
    form = visitor.get(f"send?topic={label}")
    sent = form.submit(
        "/send", body='{"city": "東京"}', tags="red", keys=f"{label} all", properties="city=Rome\r\nhtml=<b>",
        ordering_key="o",
    )  # fmt: skip
    assert sent.status == 200
    told = re.search(r"SEND_OK: sent message (\w+) to (\S+), broker-a, queue \d, offset 0\.", sent.words)
    assert told is not None, sent.words
    assert told[2] == label
    (fact,) = [row for row in sent.table("Properties") if row["Name"] == "html"]
    assert fact["Value"] == "<b>"
    assert '{"city": "東京"}' in sent.words
    (line,) = [
        one for one in map(json.loads, dashboard.audit_path.read_text().splitlines()) if label in one.get("said", "")
    ]
    assert (line["what"], line["outcome"], line["who"]) == ("send a message", "done", "local")
    as_json = sent.submit("messages/", form="json")
    assert "{\n  &#34;city&#34;: &#34;東京&#34;\n}" in as_json.text
    offset_id = sent.url.partition("?")[0].rpartition("/")[2]
    for name in (told[1], offset_id, label):
        page = until(lambda name=name: visitor.get(f"find?q={name}"), f"It is in {label} (broker-a")  # type: ignore[misc]
        assert "no group consumes its topic" in page.words
        assert f"stored in {label}" in page.words
        assert "東京" in page.words
        assert any(link.endswith(f"/messages/{label}/{offset_id}") for link in page.links)
    again = visitor.get(f"send?like={offset_id}")
    second = again.submit("/send", keys=label)
    assert "SEND_OK" in second.words
    until(lambda: visitor.get(f"find?q={label}&topic={label}"), "Matching messages")
    rows = visitor.get(f"find?q={label}&topic={label}").table("Matching messages")
    assert [(row["Topic"], row["State"]) for row in rows] == [(label, "stored")] * 2


def test_what_is_not_there_says_what_was_searched(system: System, dashboard: OrbitDashboard, label: str) -> None:
    visitor = dashboard.visitor()
    page = visitor.get(f"find?q=nothing-{label}")
    assert page.status == 404
    assert f"There is no message nothing-{label}: searched delayed and half messages" in page.words
    assert visitor.get(f"messages?topic=nowhere-{label}").status == 404
    assert visitor.get(f"messages/{label}/{'0' * 32}").status == 404
    assert visitor.get(f"trace?q=nothing-{label}").status == 200
    for path, field in (
        (f"messages?topic={label}&begin=soon", "begin: 'soon' is no point in time"),
        (f"messages?topic={label}&queue=x", "queue is 'x'"),
        (f"messages?topic={label}&budget=0", "budget is '0'"),
        (f"messages?topic={label}&mark=AAAA", "this mark of a page cannot be read"),
        (f"tail/rows?topic={label}", "mark is missing"),
        (f"messages/{label}/{'0' * 32}?charset=rot13", "charset is 'rot13'"),
    ):
        bad = visitor.get(path)
        assert (bad.status, field in bad.title) == (400, True), (path, bad.title)
    create(system, label)
    empty = visitor.get(f"messages?topic={label}")
    assert f"orbitmq msg send {label}" in empty.words


def test_a_topic_is_looked_through_filtered_and_kept_as_files(
    system: System, dashboard: OrbitDashboard, label: str
) -> None:
    create(system, label)
    fill(
        system,
        label,
        [
            Message(
                label, f"body {number} end".encode(), tags=f"t{number % 2}", keys=f"k{number}",
                properties={"n": str(number // 10)},
            )
            for number in range(50)
        ],
    )  # fmt: skip
    visitor = dashboard.visitor()
    page, keys = visitor.get(f"messages?topic={label}&rows=20"), []
    for expected in (20, 20, 10):
        rows = page.table("Messages")
        assert len(rows) == expected
        keys += [row["Keys"] for row in rows]
        others = [link for link in page.links if "mark=" in link and "export" not in link]
        following = [link for link in others if link.partition("mark=")[2] not in page.url]
        page = visitor.get(following[0]) if following else page
    assert keys == [f"k{number}" for number in range(49, -1, -1)]
    assert not following, "the last page leads nowhere"

    def found(fields: str) -> list[str]:
        return [row["Keys"] for row in visitor.get(f"messages?topic={label}&order=oldest&{fields}").table("Messages")]

    assert found("tag=t1&text=body+4") == ["k41", "k43", "k45", "k47", "k49"]
    assert found("property=n%3D2&rows=200") == [f"k{number}" for number in range(20, 30)]
    newest = visitor.get(f"messages?topic={label}&queue=0").table("Messages")[0]
    assert found(f"queue=0&broker=broker-a&offset={newest['Offset']}") == [newest["Keys"]]
    assert "No message matches" in visitor.get(f"messages?topic={label}&end=@1d").words
    cut = visitor.get(f"messages?topic={label}&text=body+1+end&budget=10")
    assert "The read limit is reached" in cut.words
    assert "10 read, 40 left" in cut.words
    until(lambda: visitor.get(f"messages?topic={label}&key=k7"), "body 7 end")

    lines = visitor.get(f"messages/export?topic={label}&rows=20&order=oldest&format=jsonl")
    assert lines.headers["content-type"] == "application/octet-stream"
    assert lines.headers["content-disposition"] == f"attachment; filename*=UTF-8''{label}.jsonl"
    told = [json.loads(line) for line in lines.body.splitlines()]
    assert [one["body"]["content"] for one in told] == [f"body {number} end" for number in range(20)]
    sheet = visitor.get(f"messages/export?topic={label}&rows=20&order=oldest&format=csv").text
    assert [row["keys"] for row in csv.DictReader(io.StringIO(sheet))] == [f"k{number}" for number in range(20)]


def test_whatever_is_in_a_message_is_text(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    binary, large = bytes(range(256)), b"<b>" + b"x" * (3 << 20)
    evil, raw, long = fill(
        system,
        label,
        [
            Message(
                label, f"{EVIL}\x07\u202e".encode(), tags="<i>t", keys=EVIL, properties={EVIL: "\u202e<img src=x>"}
            ),
            Message(label, binary),
            Message(label, large),
        ],
    )
    visitor = dashboard.visitor()
    for path in (
        f"messages/{label}/{evil}?form=text",
        f"messages?topic={label}",
        f"tail?topic={label}",
        f"send?like={evil}",
    ):
        page = visitor.get(path)
        assert page.status == 200, path
        assert "<script>alert" not in page.text, path
        assert "<img src=x" not in page.text, path
        assert "<i>t" not in page.text, path
        assert path.startswith("send") or "\u202e" not in page.text, path
    shown = visitor.get(f"messages/{label}/{evil}?form=text")
    assert f"{EVIL}␇⟨U+202E⟩" in shown.words
    assert visitor.get(f"messages/{label}/{raw}?form=hex").words.count(binary.hex()) == 1
    body = visitor.get(f"messages/{label}/{raw}/body")
    assert (body.body, body.headers["content-type"]) == (binary, "application/octet-stream")
    assert body.headers["content-disposition"].startswith("attachment")
    cut = visitor.get(f"messages/{label}/{long}")
    assert "Truncated: this is only the beginning of 3.0 MiB" in cut.words
    assert "stored as ZLIB" in cut.words
    assert len(cut.body) < 3 * SHOWN
    assert visitor.get(f"messages/{label}/{long}/body").body == large
    again = visitor.get(f"send?like={long}")
    assert "Its body is too large for a form" in again.words


def test_a_topic_is_watched(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    fill(system, label, [Message(label, b"before")])
    visitor = dashboard.visitor()
    page = visitor.get(f"tail?topic={label}&text=e")
    assert "before" in page.words

    def following(page: Page) -> str:
        (found,) = re.findall(r'hx-get="([^"]+)"', page.text)
        return str(found).replace("&amp;", "&")

    last = visitor.get(following(page))
    assert "before" not in last.words
    fill(system, label, [Message(label, b"one <b>e</b>"), Message(label, b"two"), Message(label, b"three")])
    bodies: list[str] = []

    def all_there() -> bool:
        nonlocal last
        last = visitor.get(following(last))
        bodies.extend(re.findall(r"one <b>e</b>|two|three", last.words))
        return len(bodies) == 2

    wait_until(all_there, PATIENCE_S, "what came meanwhile")
    assert sorted(bodies) == ["one <b>e</b>", "three"], "two has no e"
    assert "hx-swap-oob" in last.text
    assert "three" not in visitor.get(following(last)).words, "each is shown once"


def test_a_message_is_consumed_again_where_it_is_wanted(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    group = f"g-{label}"[:100]
    (good, bad) = fill(system, label, [Message(label, b"good"), Message(label, b"bad")])
    visitor = dashboard.visitor()
    failing = {"bad"}
    with consuming(system, label, group, lambda one: one.body.decode() not in failing) as given:
        first = {given.get(timeout=PATIENCE_S), given.get(timeout=PATIENCE_S)}
        assert first == {"good", "bad"}
        page = until(lambda: visitor.get(f"messages/{label}/{good}"), "CONSUMED")
        (track,) = page.table("Consumed by")
        assert (track["Group"], track["Members"], track["Subscription"]) == (group, "1", "*")
        choose = visitor.get(f"messages/{label}/{good}/again?group={group}")
        (direct, retry) = [
            one for one in choose.forms if dict(one.fields).get("group") == group and one.method == "post"
        ]
        plan = visitor.post(direct.action, direct.fields)
        assert plan.title == "Confirm this change"
        assert plan.table("Steps")[0]["Action"] == "consume directly"
        done = plan.submit("plans/")
        assert done.table("Steps")[0]["Outcome"] == "done"
        wait_until(lambda: given.get(timeout=PATIENCE_S) == "good", PATIENCE_S, "it to be consumed there")
        refused = visitor.post(direct.action.replace(good, bad), direct.fields).submit("plans/")
        assert refused.table("Steps")[0]["Outcome"] == "failed"
        assert "said CR_THROW_EXCEPTION" in refused.words
        failing.clear()
        while not given.empty():
            given.get()
        visitor.post(retry.action, retry.fields).submit("plans/")
        wait_until(lambda: given.get(timeout=PATIENCE_S) == "good", PATIENCE_S, "the retry")


def test_dead_letters_are_chosen_and_delivered_again(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    group = f"g-{label}"[:100]
    fill(system, label, [Message(label, f"bad {number}".encode(), keys=f"k{number}") for number in range(3)])
    visitor = dashboard.visitor()
    assert f"{group} has none" in visitor.get(f"dead-letters/{group}").words
    is_mended = False
    with consuming(system, label, group, lambda _one: is_mended) as given:

        def all_dead() -> Page | None:
            page = visitor.get(f"dead-letters/{group}")
            return page if sum(row.get("Topic") == label for row in page.table("Dead letters")) == 3 else None

        page = wait_until(all_dead, PATIENCE_S, "three dead letters")
        rows = [row for row in page.table("Dead letters") if row.get("Topic") == label]
        assert {row["Keys"] for row in rows} == {"k0", "k1", "k2"}
        assert {row["Retries"] for row in rows} == {"2"}
        until(lambda: visitor.get(f"dead-letters/{group}"), "raised an error")
        groups = visitor.get(f"dead-letters?containing={group}").table("Groups with dead letters")
        assert [(row["Group"], row["Dead letters"]) for row in groups] == [(group, "3")]
        is_mended = True
        while not given.empty():
            given.get()
        none = page.submit("/again")
        assert (none.status, "no dead letter is selected" in none.title) == (400, True)
        ids = re.findall(r'name="id" value="(\w+)"', page.text)
        plan = page.submit("/again", id=ids[:2])
        assert [row["After"] for row in plan.table("Steps")] == [f"%RETRY%{group}"] * 2
        done = plan.submit("plans/")
        assert [row["Outcome"] for row in done.table("Steps")] == ["done"] * 2
        again = {given.get(timeout=PATIENCE_S), given.get(timeout=PATIENCE_S)}
        assert len(again) == 2
    file = visitor.get(f"dead-letters/{group}/export?format=jsonl").body.splitlines()
    assert {json.loads(line)["realTopic"] for line in file} == {label}
    copied = page.submit("/again", id=ids[2:], how="topic", to=label).submit("plans/")
    assert [row["Outcome"] for row in copied.table("Steps")] == ["done"]


def test_what_waits_is_shown(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    visitor = dashboard.visitor()
    sent = visitor.get("send").submit("/send", topic=label, body="later", delay_level=LONG_DELAY_LEVEL, keys=label)
    assert "SCHEDULE_TOPIC_XXXX" in sent.words
    rows = visitor.get("delayed").table("Delay levels")
    (row,) = [one for one in rows if one["Level"] == str(LONG_DELAY_LEVEL)]
    assert (row["Broker"], row["Overdue by"]) == ("broker-a", "on time")
    page = until(lambda: visitor.get(f"find?q={label}"), "It waits for its delay")
    assert f"delivered to {label} then" in page.words


def test_half_messages_are_listed_and_their_producer_is_asked_again(
    system: System, dashboard: OrbitDashboard, label: str
) -> None:
    create(system, label)
    unique = UniqueIds(b"\x7f\0\0\1", 4711, b"half").create(SystemClock().now_ms())

    async def prepare() -> None:
        async with raw_producer(system.address, f"p-{label}"[:100]) as producer:
            await producer.prepare(label, b"half", unique, born_ms=SystemClock().now_ms())

    with left_alone(system.address, ASKED_FROM_MS):
        asyncio.run(prepare())
        page = dashboard.visitor().get(f"half?topic={label}")
        assert page.status == 200
        rows = page.table("Pending transactions")
        if isinstance(system, JavaSystem):
            assert "brokers of RocketMQ do not list pending transactions" in page.words
            assert "Partial:" in page.words
            return
        assert [row["Message"] for row in rows] == [unique]
        plan = page.submit("/check")
        assert plan.table("Steps")[0]["Action"] == "resume check"
        assert plan.submit("plans/").table("Steps")[0]["Outcome"] == "done"


def test_a_trace_is_a_line_of_time(system: System, dashboard: OrbitDashboard, label: str) -> None:
    create(system, label)
    group = f"g-{label}"[:100]
    with Producer(f"p-{label}"[:100], system.namesrv_address, enable_trace=True) as producer:
        sent = producer.send(Message(label, b"bad", keys=label))
    with consuming(system, label, group, lambda one: one.reconsume_times > 0):
        page = until(lambda: dashboard.visitor().get(f"trace?q={label}"), "consumed, attempt 2")
    rows = page.table(f"Trace of {sent.msg_id}")
    assert [(row["Step"], row["Outcome"]) for row in rows][:2] == [
        ("sent", "success"),
        ("consumed, attempt 1", "failed: it raised an error"),
    ]
    assert {row["Group"] for row in rows} == {f"p-{label}"[:100], group}
    assert page.text.count("<rect") == 2 * len(rows)
    assert "style=" not in page.text
    one = dashboard.visitor().get(f"messages/{label}/{sent.offset_msg_id}")
    assert len(one.table(f"Trace of {sent.msg_id}")) >= 3
