"""`orbitmq gateway` in front of a live broker: what goes in by HTTP comes out, once it is settled never again."""

from __future__ import annotations

import http.client
import itertools
import json
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orbitmq.client import Message
from orbitmq.client.sync import Producer, PullConsumer
from orbitmq.gateway import links
from orbitmq.gateway.limits import BODY_BYTES_MAX, EACH_SHARE, STREAMS_MAX
from orbitmq.message.topics import dlq_topic, retry_topic
from tests.support.gateways import Caller, OrbitGateway, Reply
from tests.support.orbit_process import OrbitUp
from tests.support.process import wait_until

_numbers = itertools.count()
PATIENCE_S = 20


@pytest.fixture(scope="module")
def up() -> Iterator[OrbitUp]:
    with OrbitUp(enablePropertyFilter="true", recallMessageEnable="true") as running:
        yield running


@pytest.fixture(scope="module")
def gateway(up: OrbitUp) -> Iterator[OrbitGateway]:
    with OrbitGateway(up.namesrv_address) as running:
        yield running


@pytest.fixture
def caller(gateway: OrbitGateway) -> Caller:
    return gateway.caller()


@pytest.fixture(scope="module")
def producer(up: OrbitUp) -> Iterator[Producer]:
    with Producer("gateway-tests", up.namesrv_address) as made:
        yield made


@pytest.fixture
def topic(producer: Producer) -> str:
    """With two queues."""
    name = f"Gateway{next(_numbers)}"
    producer.create_topic(name, queues=2)
    return name


def send(caller: Caller, topic: str, **message: object) -> Reply:
    return caller.post(f"/v1/topics/{topic}/messages", {"body": "x", **message})


def received(caller: Caller, topic: str, group: str = "readers", **given: object) -> list[dict[str, object]]:
    reply = caller.post(f"/v1/topics/{topic}/groups/{group}/receive", {"waitSeconds": 0, **given})
    assert reply.status == 200, reply
    found: list[dict[str, object]] = reply.body["messages"]
    return found


def settle(caller: Caller, topic: str, verb: str, *messages: dict[str, object], group: str = "readers") -> Reply:
    handles = [one["handle"] for one in messages]
    return caller.post(f"/v1/topics/{topic}/groups/{group}/{verb}", {"handles": handles})


def test_a_message_comes_out_as_it_went_in(caller: Caller, topic: str) -> None:
    given = {"body": "héllo", "tag": "a", "keys": ["k1", "k2"], "properties": {"color": "red"}}
    sent = send(caller, topic, **given).body
    (got,) = received(caller, topic)
    assert {name: got[name] for name in given} == given
    assert (got["messageId"], got["place"], got["attempt"]) == (sent["messageId"], sent["place"], 1)
    assert settle(caller, topic, "acknowledge", got).body == {"settled": 1, "failures": []}
    assert received(caller, topic) == []


def test_bytes_that_are_no_text_stay_as_they_are(caller: Caller, topic: str) -> None:
    assert send(caller, topic, body="").status == 400
    reply = caller.post(f"/v1/topics/{topic}/messages", {"bodyBase64": "/w8A"})
    assert reply.status == 200
    (got,) = received(caller, topic)
    assert (got["bodyBase64"], "body" in got) == ("/w8A", False)


def test_a_batch_is_in_one_queue_in_its_order(caller: Caller, topic: str) -> None:
    batch = {"messages": [{"body": str(number)} for number in range(5)], "shardingKey": "k"}
    sent = caller.post(f"/v1/topics/{topic}/batches", batch).body["messages"]
    assert len({one["messageId"] for one in sent}) == 5
    assert [one["place"]["queueOffset"] for one in sent] == list(range(5))
    again = caller.post(f"/v1/topics/{topic}/batches", batch).body["messages"]
    assert {one["place"]["queueId"] for one in (*sent, *again)} == {sent[0]["place"]["queueId"]}


def test_messages_with_one_sharding_key_share_a_queue(caller: Caller, topic: str) -> None:
    places = [send(caller, topic, shardingKey="key").body["place"]["queueId"] for _ in range(4)]
    assert len(set(places)) == 1


def test_a_delayed_message_comes_when_it_is_due_and_can_be_recalled(caller: Caller, topic: str) -> None:
    sent = send(caller, topic, body="later", delaySeconds=1)
    assert sent.body["recallHandle"]
    assert received(caller, topic) == []
    (got,) = received(caller, topic, waitSeconds=PATIENCE_S)
    assert (got["body"], got.get("properties", {})) == ("later", {})
    assert send(caller, topic, delaySeconds=1, delayLevel=1).status == 400


def test_what_is_not_acknowledged_comes_again_and_its_attempt_is_counted(caller: Caller, topic: str) -> None:
    send(caller, topic)
    (first,) = received(caller, topic, invisibleSeconds=0.5)
    (again,) = received(caller, topic, waitSeconds=PATIENCE_S)
    assert (again["messageId"], again["attempt"]) == (first["messageId"], 2)


def test_a_message_is_given_back_or_kept_longer(caller: Caller, topic: str) -> None:
    send(caller, topic)
    path = f"/v1/topics/{topic}/groups/readers/visibility"
    (first,) = received(caller, topic)
    assert caller.post(path, {"handle": first["handle"], "invisibleSeconds": 0}).status == 200
    (again,) = received(caller, topic, waitSeconds=PATIENCE_S, invisibleSeconds=1)
    kept = caller.post(path, {"handle": again["handle"], "invisibleSeconds": 60}).body
    assert received(caller, topic, waitSeconds=2) == []
    assert settle(caller, topic, "acknowledge", kept).body["settled"] == 1


def test_a_rejected_message_is_a_dead_letter(up: OrbitUp, caller: Caller, topic: str) -> None:
    send(caller, topic, body="poison")
    (got,) = received(caller, topic, group="rejecting")
    assert settle(caller, topic, "reject", got, group="rejecting").body["settled"] == 1
    with PullConsumer("readers-of-dead", up.namesrv_address) as consumer:
        (queue,) = consumer.fetch_queues(dlq_topic("rejecting"))
        assert [one.body for one in consumer.pull(queue, "*", 0, 32).messages] == [b"poison"]


def test_a_group_gets_what_its_filter_wants(caller: Caller, topic: str) -> None:
    for tag in "abc":
        send(caller, topic, tag=tag, properties={"price": str(ord(tag))})
    tags = [one["tag"] for one in (*received(caller, topic, group="g1", filter="a || c"),
                                   *received(caller, topic, group="g1", filter="a || c"))]  # fmt: skip
    assert sorted(map(str, tags)) == ["a", "c"]
    (one,) = received(caller, topic, group="g2", filter="price = 98", filterType="SQL92")
    assert one["tag"] == "b"
    wrong = caller.post(f"/v1/topics/{topic}/groups/g3/receive", {"filter": "price =", "filterType": "SQL92"})
    assert (wrong.status, "column" in wrong.body["detail"]) == (400, True)


def test_a_receive_that_waits_gets_what_comes(up: OrbitUp, caller: Caller, gateway: OrbitGateway, topic: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    path = f"/v1/topics/{topic}/groups/readers/receive"
    connection.request("POST", path, json.dumps({"waitSeconds": PATIENCE_S}), {"Content-Type": "application/json"})
    wait_until(lambda: waiting(caller) == 1, PATIENCE_S, "a receive that waits")
    send(caller, topic, body="at last")
    assert json.loads(connection.getresponse().read())["messages"][0]["body"] == "at last"
    connection.close()
    assert waiting(caller) == 0


def test_a_caller_that_has_gone_leaves_its_place_and_its_message(
    caller: Caller, gateway: OrbitGateway, topic: str
) -> None:
    """Not after the invisible time, which is longer than the test."""
    path = f"/v1/topics/{topic}/groups/readers/receive"
    with socket.create_connection(("127.0.0.1", gateway.port)) as peer:
        body = b'{"waitSeconds": 30, "invisibleSeconds": 3600}'
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        peer.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: waiting(caller) == 1, PATIENCE_S, "a receive that waits")
    wait_until(lambda: waiting(caller) == 0, PATIENCE_S, "its place")
    send(caller, topic)
    assert len(received(caller, topic, waitSeconds=PATIENCE_S)) == 1


def waiting(caller: Caller) -> float:
    return metric(caller, "orbitmq_gateway_waiting_receives")


def metric(caller: Caller, name: str) -> float:
    text: str = caller.get("/metrics").body
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(f"{name} "))


# -------------------------------------------------------------------------------------------------------------- streams


def test_a_stream_of_a_topic_goes_on_after_its_last_event(caller: Caller, topic: str) -> None:
    for number in range(6):
        send(caller, topic, body=str(number))
    path = f"/v1/topics/{topic}/events?start=begin"
    first = list(itertools.islice(caller.events(path), 3))
    rest = list(itertools.islice(caller.events(path, Last_Event_ID=str(first[-1].id)), 3))
    assert sorted(one.data["body"] for one in (*first, *rest)) == list("012345")
    send(caller, topic, body="new")
    (last,) = itertools.islice(caller.events(path, Last_Event_ID=str(rest[-1].id)), 1)
    assert last.data["body"] == "new"


def test_a_stream_without_a_place_begins_with_what_comes(caller: Caller, topic: str) -> None:
    send(caller, topic, body="old")
    stream = caller.events(f"/v1/topics/{topic}/events?tags=wanted&seconds=60")

    def sent() -> bool:
        send(caller, topic, body="unwanted", tag="other")
        send(caller, topic, body="new", tag="wanted")
        return True

    wait_until(lambda: metric(caller, "orbitmq_gateway_streams") == 0, PATIENCE_S, "no stream")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, stream)
        wait_until(lambda: metric(caller, "orbitmq_gateway_streams") == 1, PATIENCE_S, "a stream")
        wait_until(sent, PATIENCE_S, "messages")
        assert first.result(PATIENCE_S).data["body"] == "new"
    stream.close()
    wait_until(lambda: metric(caller, "orbitmq_gateway_streams") == 0, PATIENCE_S, "the stream's place")


def test_a_stream_that_ends_before_its_first_event_goes_on_as_well(caller: Caller, topic: str) -> None:
    path = f"/v1/topics/{topic}/events"
    (last,) = re.findall(r"^id: (.+)$", caller.get(f"{path}?seconds=0.2").body, re.MULTILINE)
    send(caller, topic, body="meanwhile")
    (event,) = itertools.islice(caller.events(path, Last_Event_ID=last), 1)
    assert event.data["body"] == "meanwhile"


def test_a_wrong_last_event_is_refused(caller: Caller, topic: str) -> None:
    for text in ("0", "broker-a:0", "broker-a:0:0,,", "broker-a:x:0", f"broker-a:0:{1 << 63}"):
        reply = caller.get(f"/v1/topics/{topic}/events", Last_Event_ID=text)
        assert (reply.status, text in reply.body["detail"]) == (400, True)


def test_a_stream_delivers_no_more_than_may_be_open(caller: Caller, topic: str) -> None:
    for number in range(6):
        send(caller, topic, body=str(number))
    seen = []
    for event in caller.events(f"/v1/topics/{topic}/groups/readers/events?prefetch=2&seconds=60"):
        seen.append(event.data)
        if len(seen) % 2 == 0:
            lag = caller.get(f"/v1/topics/{topic}/groups/readers/lag").body
            assert (lag["inFlight"], lag["backlog"]) == (2, 8 - len(seen))
            assert settle(caller, topic, "acknowledge", *seen[-2:]).body["settled"] == 2
        if len(seen) == 6:
            break
    assert sorted(one["body"] for one in seen) == list("012345")
    assert caller.get(f"/v1/topics/{topic}/groups/readers/lag").body["backlog"] == 0


def test_a_stream_ends_after_its_time(caller: Caller, topic: str) -> None:
    assert list(caller.events(f"/v1/topics/{topic}/groups/readers/events?seconds=0.2")) == []
    assert list(caller.events(f"/v1/topics/{topic}/events?seconds=0.2")) == []


# ------------------------------------------------------------------------------------------------------------------ lag


def test_the_lag_counts_what_waits_what_is_in_flight_and_what_comes_again(caller: Caller, topic: str) -> None:
    path = f"/v1/topics/{topic}/groups/scaled/lag"
    for _ in range(3):
        send(caller, topic)
    before = caller.get(path).body
    assert (before["lag"], before["inFlight"], before["backlog"]) == (3, 0, 3)
    taken = received(caller, topic, group="scaled", maxMessages=1)
    during = caller.get(path).body
    assert (during["lag"], during["inFlight"], during["backlog"]) == (2, 1, 3)
    visibility = f"/v1/topics/{topic}/groups/scaled/visibility"
    caller.post(visibility, {"handle": taken[0]["handle"], "invisibleSeconds": 0})
    wait_until(lambda: caller.get(path).body["lag"] == 3, PATIENCE_S, "the message in the retry queue")
    assert [one["lag"] for one in caller.get(path).body["queues"] if one["isRetry"]] == [1]


def test_the_lag_counts_what_push_consumers_could_not_consume(caller: Caller, topic: str, producer: Producer) -> None:
    """Their retry topic is another one than that of deliveries. Without members nothing else consumes it."""
    send(caller, topic)
    path = f"/v1/topics/{topic}/groups/pushed/lag"
    assert caller.get(path).body["lag"] == 1
    producer.create_topic(retry_topic("pushed"), queues=1)
    producer.send(Message(retry_topic("pushed"), b"failed"))
    wait_until(lambda: caller.get(path).body["lag"] == 2, PATIENCE_S, "the message in the retry queue")
    assert [one["lag"] for one in caller.get(path).body["queues"] if one["isRetry"]] == [1]


def test_an_unknown_lag_is_a_problem_and_not_zero() -> None:
    with OrbitUp() as up, OrbitGateway(up.namesrv_address) as gateway:
        caller = gateway.caller()
        assert send(caller, "Gone").status == 200
        assert caller.get("/v1/topics/Gone/groups/g/lag").status == 200
        up.kill()
        reply = caller.get("/v1/topics/Gone/groups/g/lag")
        assert reply.status in (503, 504)
        assert reply.body["retryable"]
        assert caller.get("/readyz").status == 503
        assert caller.get("/healthz").status == 200


# --------------------------------------------------------------------------------------------------------------- checks


def test_each_problem_names_what_is_wrong_and_what_to_do(caller: Caller, topic: str) -> None:
    group = f"/v1/topics/{topic}/groups/readers"
    for reply, status, culprit in (
        (caller.post(f"{group}/receive", {"maxMessages": 99}), 400, "$.maxMessages"),
        (caller.post(f"{group}/receive", {"maxMesages": 9}), 400, "maxMesages"),
        (caller.post(f"/v1/topics/{topic}/messages", {}), 400, "bodyBase64"),
        (caller.post("/v1/topics/no%20name/messages", {"body": "x"}), 400, "$.topic"),
        (caller.get(f"/v1/topics/{topic}/events?seconds=1&seconds=2"), 400, "seconds"),
        (caller.get(f"/v1/topics/{topic}/events?from=1"), 400, "from"),
        (caller.get("/v1/topics/NoSuchTopic/groups/g/lag"), 404, "NoSuchTopic"),
        (caller.post(f"{group}/acknowledge", {"handles": ["AAAA"]}), 404, "AAAA"),
        (caller.get("/v1/nothing"), 404, "/v1/nothing"),
        (caller.get(f"/v1/topics/{topic}/messages"), 405, "GET"),
        (caller.post(f"/v1/topics/{topic}/messages", {"body": "x"}, Content_Type="text/plain"), 415, "text/plain"),
        (caller.post(f"/v1/topics/{topic}/messages", {"body": "x"}, Host="evil.example"), 421, "evil.example"),
    ):
        assert reply.status == reply.body["status"] == status, reply
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.body["type"].startswith("urn:orbitmq:problem:")
        assert culprit in reply.body["detail"], reply.body
        assert reply.body.get("hint") or status == 400


def test_a_body_beyond_the_limit_is_refused(caller: Caller, topic: str) -> None:
    reply = caller.post(f"/v1/topics/{topic}/messages", {"body": "x" * BODY_BYTES_MAX})
    assert (reply.status, str(BODY_BYTES_MAX) in reply.body["detail"]) == (413, True)


def test_a_page_of_another_site_gets_nothing(caller: Caller, topic: str) -> None:
    """A browser adds the account that it knows, and reaches loopback."""
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert caller.post(f"/v1/topics/{topic}/messages", {"body": "x"}, **headers).status == 403
        assert caller.get(f"/v1/topics/{topic}/groups/g/events", **headers).status == 403
    assert "access-control-allow-origin" not in send(caller, topic).headers


def test_one_caller_leaves_streams_to_others(up: OrbitUp, topic: str, producer: Producer) -> None:
    """The limit of all is four times what one may have, so another caller than this one is refused nothing."""
    with OrbitGateway(up.namesrv_address) as gateway:
        caller, path = gateway.caller(), f"/v1/topics/{topic}/events?seconds=3600"
        share, open_ones = STREAMS_MAX // EACH_SHARE, []
        for _ in range(share):
            peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
            peer.request("GET", path)
            assert peer.getresponse().status == 200
            open_ones.append(peer)
        refused = caller.get(path)
        assert (refused.status, str(share) in refused.body["detail"]) == (429, True)
        assert refused.headers["retry-after"] == "1"
        assert send(caller, topic).status == 200
        for peer in open_ones:
            peer.close()
        wait_until(lambda: metric(caller, "orbitmq_gateway_streams") == 0, PATIENCE_S, "the places")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_gateway_stops_cleanly_with_streams_open(up: OrbitUp, topic: str, number: signal.Signals) -> None:
    with OrbitGateway(up.namesrv_address) as gateway:
        peer = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
        peer.request("GET", f"/v1/topics/{topic}/events?seconds=3600")
        response = peer.getresponse()
        assert gateway.process is not None
        gateway.process.signal(number)
        assert gateway.process.wait(PATIENCE_S) == 0
        assert response.read().startswith(b"retry: ")
        peer.close()


async def test_a_caller_may_name_topics_without_end(up: OrbitUp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes are kept of a limited number, and looked up again for the next message."""
    monkeypatch.setattr(links, "TOPICS_MAX", 2)
    made = links.Links([up.namesrv_address], {"tls": False})
    kept = []
    for number in range(4):
        async with made.use(None, "127.0.0.1") as link:
            assert await link.fetch_publish_queues(f"OneOfMany{number}")
        kept.append(link.topics)
        assert (await link.send(Message(f"OneOfMany{number}", b"x"))).queue.topic == f"OneOfMany{number}"
    await made.stop()
    assert kept == [1, 2, 0, 2]


def test_what_other_clients_send_comes_out(producer: Producer, caller: Caller, topic: str) -> None:
    producer.send(Message(topic, b"z" * 5000, keys="k"))  # compressed by the client
    (got,) = received(caller, topic)
    assert got["body"] == "z" * 5000
    (event,) = itertools.islice(caller.events(f"/v1/topics/{topic}/events?start=begin"), 1)
    assert event.data["body"] == "z" * 5000


def test_the_document_is_served_as_it_is_published(caller: Caller) -> None:
    published = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"
    assert caller.get("/openapi.json").body == json.loads(published.read_text(encoding="utf-8"))
