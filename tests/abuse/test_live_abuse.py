"""What a hostile or broken client does to a living `orbitmq up` stays its own trouble: a client that behaves goes on,
the memory of the process is bounded, and each limit has one line in the log and a counter in `/metrics`.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orbitmq.broker.held_pulls import HELD_BY_ONE_MAX
from orbitmq.broker.offsets import STRANGERS_MAX
from orbitmq.message.batch import encode_batch
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.runtime.limits import raise_open_files
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FRAME_SIZE_MAX, HEADER_SIZE_MAX, encode_frame
from orbitmq.wire.headers import PullMessageHeader, UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader, PutKVConfigHeader, RegisterBrokerHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.abusers import (
    GOOD_TOPIC,
    PATIENCE_S,
    GoodClient,
    Page,
    anonymous_bytes,
    attackers,
    most_bytes,
    send_request,
)
from tests.support.orbit_process import ORBITMQ, OrbitUp
from tests.support.process import ChildProcess, accepts, free_port, wait_until

MIB = 1 << 20
FILES = 300
MEMORY_MAX = 64 * MIB  # of each kind
ONE_HOST_MAX = 2000
LOOKS = 40  # at what a thread does, 5 ms apart
MANY = 40  # refusals of which a busy machine still makes few lines
AUTO_TOPICS, TOPICS, AUTO_GROUPS, OFFSETS = 60, 90, 40, STRANGERS_MAX + 500
HEAP_SLACK = 120 * MIB  # what the process may grow beside a limit: pieces on their way, and what its allocator keeps


class Abused(OrbitUp):
    """The process and its page."""

    def __init__(self, **config: object) -> None:
        self._page_port = free_port()
        super().__init__(metricsExporterType="PROM", metricsPromExporterPort=self._page_port, **config)
        self.page = Page(self._page_port)

    def _is_ready(self, process: ChildProcess) -> bool:
        """The page is served last."""
        return super()._is_ready(process) and accepts(self._page_port)

    @property
    def running(self) -> ChildProcess:
        assert self.process is not None, "it has been started"
        return self.process

    def lines(self, event: str) -> int:
        return self.running.errors().count(f"event={event} ")


@pytest.fixture(scope="module")
def abused() -> Iterator[Abused]:
    raise_open_files()
    options = {
        "connectionsPerHostMax": ONE_HOST_MAX,
        "connectionMemoryMax": MEMORY_MAX,
        "mappedFileSizeCommitLog": 64 * MIB,
    }
    with Abused(**options) as up:
        yield up


@pytest.fixture
def small() -> Iterator[Abused]:
    """One that may have few of everything, and that nobody has filled before."""
    options = {
        "autoCreatedTopicsMax": AUTO_TOPICS,
        "topicsMax": TOPICS,
        "autoCreatedGroupsMax": AUTO_GROUPS,
        "consumerOffsetsMax": OFFSETS,
        "mappedFileSizeCommitLog": 64 * MIB,
    }
    with Abused(**options) as up:
        yield up


class Narrow(Abused):
    """Whose administrator allows it few open files, and requests little time to arrive."""

    program = ("/bin/sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh", ORBITMQ)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Narrow]:
    with Narrow(frameTimeoutMillis=1000) as up:
        yield up


@contextmanager
def unharmed(up: Abused, growth: int) -> Iterator[None]:
    """While this goes on a client that behaves loses nothing, and the process keeps its size."""
    before = anonymous_bytes(up.running)
    with GoodClient(up.address):
        yield
        grown = anonymous_bytes(up.running) - before
    up.check_alive()
    assert grown < growth, f"{grown >> 20} MiB"


def is_refused(up: Abused, limit: str, event: str, at_least: int) -> None:
    """So many refusals are counted, and they have made a line, but not one each."""
    wait_until(lambda: up.page.refused(limit) >= at_least, PATIENCE_S, f"{at_least} refusals of {limit}")
    assert up.lines(event) >= 1
    assert at_least < MANY or up.lines(event) < at_least / 2


# --------------------------------------------------------------------------------------------------------- connections


def test_idle_connections_cost_little_and_one_address_leaves_room_for_others(abused: Abused) -> None:
    before, known = anonymous_bytes(abused.running), abused.page.connections()
    with unharmed(abused, 30_000 * ONE_HOST_MAX), attackers(abused.port, ONE_HOST_MAX):
        wait_until(lambda: abused.page.connections() >= known + ONE_HOST_MAX, PATIENCE_S, "all of them")
        each = (anonymous_bytes(abused.running) - before) // ONE_HOST_MAX
        print(f"{ONE_HOST_MAX} idle connections: {each} bytes each")
        with attackers(abused.port, 5) as surplus:
            assert all(one.is_cut_off() for one in surplus)
        is_refused(abused, "connections_of_one_host", "too_many_connections_of_one_host", 5)


def test_requests_that_trickle_in_or_never_come_are_given_up(narrow: Narrow) -> None:
    """A byte at a time, or a length that is announced and not met: silence is not what tells them."""
    frame = encode_frame(send_request(GOOD_TOPIC))
    with unharmed(narrow, HEAP_SLACK), attackers(narrow.port, 40) as peers:
        trickling, waiting = peers[:20], peers[20:]
        for one in waiting:
            one.push(frame[:8])
        sent = 0

        def are_cut_off() -> bool:
            nonlocal sent
            if sent < len(frame) - 1:
                for one in trickling:
                    one.push_what_fits(frame[sent : sent + 1])
                sent += 1
            return all(one.is_cut_off_already() for one in peers)

        wait_until(are_cut_off, PATIENCE_S, "the slow ones to be cut off")
        is_refused(narrow, "frame_time", "frame_too_slow", 40)


def test_what_is_no_request_ends_its_connection_alone(abused: Abused) -> None:
    junk = (
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", FRAME_SIZE_MAX, 0),
        struct.pack(">II", 3 * MIB, 2 * MIB) + bytes(3 * MIB),  # a header that is too long
        encode_frame(request(RequestCode.HEART_BEAT, body=b"{}")).replace(b'"code"', b"'code'") * 2,
    )
    deep = b'{"code":10,"extFields":' + b'{"a":' * 10_000 + b"}" * 10_001
    fields = b'{code:34,"extFields":{' + b"a:1," * 100_000 + b"}}"  # as lenient as Java, and long
    with unharmed(abused, HEAP_SLACK):
        for data in (*junk[:3], framed(deep), framed(fields)):
            with attackers(abused.port, 1) as (one,):
                one.push(data)
                assert one.is_cut_off(), data[:40]
        is_refused(abused, "malformed", "bad_frame", 5)


def framed(header: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header), len(header)) + header


# -------------------------------------------------------------------------------------------------------------- memory


def test_incomplete_requests_of_all_together_are_bounded(abused: Abused) -> None:
    """Who holds most is cut off first, and the large request of another client still arrives."""
    frame = encode_frame(send_request(GOOD_TOPIC, bytes(FRAME_SIZE_MAX - 4096)))
    with unharmed(abused, MEMORY_MAX + HEAP_SLACK), attackers(abused.port, 8) as peers:
        before = abused.page.refused("incomplete_bytes")
        for one in peers:
            one.push(frame[: 15 * MIB])
        wait_until(lambda: abused.page.refused("incomplete_bytes") > before, PATIENCE_S, "one to be cut off")
        with attackers(abused.port, 1) as (one,):
            assert one.ask(send_request(GOOD_TOPIC, bytes(MIB))).code == 0
    assert abused.lines("cut_off") >= 1


def test_large_requests_whose_answers_are_not_read_fill_no_memory(abused: Abused) -> None:
    frame = encode_frame(send_request(GOOD_TOPIC, bytes(FRAME_SIZE_MAX - 4096)))
    with unharmed(abused, MEMORY_MAX + HEAP_SLACK), attackers(abused.port, 3) as peers:
        for _ in range(3):
            for one in peers:
                one.push(frame)
        assert [one.answer().code for one in peers] == [13, 13, 13]


def test_answers_that_nobody_reads_are_bounded(abused: Abused) -> None:
    """Each of many stops at a few MiB; together they may not have more than the limit."""
    pull = encode_frame(pull_request("Heavy", 0, max_messages=1 << 30))
    with attackers(abused.port, 1) as (one,):
        assert one.ask(send_request("Heavy", bytes(MIB))).code == 0
        assert one.ask(request(RequestCode.HEART_BEAT, body=beat("readers", "Heavy"))).code == 0
    before = abused.page.refused("unread_bytes")
    with unharmed(abused, MEMORY_MAX + HEAP_SLACK), attackers(abused.port, 30, receive_buffer=4096) as peers:
        for one in peers:
            one.push(pull * 40)
        wait_until(lambda: abused.page.refused("unread_bytes") > before, PATIENCE_S, "some to be cut off")
        held = abused.page.scraped().value("orbitmq_connection_memory_bytes", kind="unread_bytes")
        assert held <= MEMORY_MAX


def test_a_consumer_that_waits_for_everything_at_once_has_a_limit(abused: Abused) -> None:
    """More pulls in flight on one connection than it may have held; the last ones are answered at once."""
    surplus = 500
    waiting = b"".join(
        encode_frame(pull_request("Awaited", 1, flags=PULL_SUBSCRIPTION | PULL_SUSPEND)) for _ in range(1000)
    )
    with attackers(abused.port, 1) as (one,):
        assert one.ask(send_request("Awaited")).code == 0
    with unharmed(abused, HELD_BY_ONE_MAX * 4096 + HEAP_SLACK), attackers(abused.port, 1) as (one,):
        for _ in range(HELD_BY_ONE_MAX // 1000):
            one.push(waiting)
        one.push(waiting[: len(waiting) // 1000 * surplus])
        is_refused(abused, "held_pulls", "pull_not_held", surplus // 2)


def pull_request(topic: str, offset: int, *, max_messages: int = 32, flags: int = PULL_SUBSCRIPTION) -> Command:
    header = PullMessageHeader("readers", topic, 0, offset, max_messages, flags, 0, 3_600_000, 0, "*", "TAG")
    return request(RequestCode.PULL_MESSAGE, header)


def beat(*groups: str) -> bytes:
    return encode(HeartbeatData("abuser", [ConsumerData(group) for group in groups], [ProducerData("p")]))


# ------------------------------------------------------------------------------------------------------- large requests


def test_requests_that_are_too_large_are_refused_and_their_connection_lives(abused: Abused) -> None:
    everything = ",".join(f'{{"topic":"Topic{number}","subString":"*"}}' for number in range(100_000))
    giant = b'{"clientID":"abuser","consumerDataSet":[{"groupName":"wide","subscriptionDataSet":[%b]}]}' % (
        everything.encode()
    )
    odd = b"{clientID:'abuser',consumerDataSet:[" + b"{}," * (MIB // 3) + b"]}"
    wide = PullMessageHeader("readers", GOOD_TOPIC, 0, 0, 1, PULL_SUBSCRIPTION, 0, 0, 0, "a||" * 10_000, "TAG")
    asked = (
        (send_request(GOOD_TOPIC, properties="k\x01" + "v" * (40 << 10) + "\x02"), 13),
        (send_request(GOOD_TOPIC, bytes(5 * MIB)), 13),
        (request(RequestCode.HEART_BEAT, body=giant), 1),
        (request(RequestCode.HEART_BEAT, body=giant + b" " * MIB), 1),
        (request(RequestCode.HEART_BEAT, body=odd), 1),
        (request(RequestCode.HEART_BEAT, body=encode(HeartbeatData("c" * 5000))), 1),
        (request(RequestCode.LOCK_BATCH_MQ, body=b"[" * (2 * MIB)), 1),
        (request(RequestCode.PULL_MESSAGE, wide), 23),
        (send_request(GOOD_TOPIC), 0),
    )
    with unharmed(abused, HEAP_SLACK), attackers(abused.port, 1) as (one,):
        assert [one.ask(command).code for command, _ in asked] == [code for _, code in asked]
    is_refused(abused, "bodies", "body_refused", 2)
    is_refused(abused, "expressions", "expression_refused", 1)


def test_a_batch_that_unfolds_in_the_log_is_refused_before_it_does(abused: Abused) -> None:
    """A megabyte of empty messages, and properties that each of them gets: 950 MB."""
    wide = send_request(
        GOOD_TOPIC, encode_batch([(0, b"", "")] * 47_000), properties="k\x01" + "v" * 20_000, batch=True
    )
    fair = send_request(GOOD_TOPIC, encode_batch([(0, b"", "")] * 10), properties="k\x01" + "v" * 20_000, batch=True)
    with unharmed(abused, HEAP_SLACK), attackers(abused.port, 1) as (one,):
        before = most_bytes(abused.running)
        assert [one.ask(command).code for command in (wide, fair)] == [13, 0]
        grown = most_bytes(abused.running) - before
        assert grown < HEAP_SLACK, f"{grown >> 20} MiB"


# ---------------------------------------------------------------------------------------------------- what is created


def test_topics_that_one_client_invents_leave_room_for_administrators_and_for_those_who_have_theirs(
    small: Abused,
) -> None:
    with unharmed(small, HEAP_SLACK), attackers(small.port, 1) as (one,):
        codes = [one.ask(send_request(f"Invented{number}")).code for number in range(AUTO_TOPICS + 50)]
        assert codes[0] == 0
        assert codes[-50:] == [17] * 50
        is_refused(small, "topics", "topic_refused", 50)
        made = [one.ask(create_topic(f"Made{number}")) for number in range(TOPICS - AUTO_TOPICS + 10)]
        assert made[0].code == 0
        assert {answer.code for answer in made[-10:]} == {1}
        assert "topicsMax" in (made[-1].remark or "")
        assert one.ask(send_request("Invented0")).code == 0
        assert one.ask(send_request("Made0")).code == 0
    with attackers(int(small.namesrv_address.rpartition(":")[2]), 1) as (one,):
        route = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("Invented0"))
        assert one.ask(route).code == 0, "all of them fit into the registration"


def create_topic(name: str) -> Command:
    header = CreateTopicHeader(name, "TBW102", 1, 1, 6, "SINGLE_TAG", order=False)
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def test_groups_and_offsets_that_one_client_invents_have_limits(small: Abused) -> None:
    with unharmed(small, HEAP_SLACK), attackers(small.port, 1) as (one,):
        for start in range(0, 200, 50):
            groups = [f"invented{number}" for number in range(start, start + 50)]
            assert one.ask(request(RequestCode.HEART_BEAT, body=beat(*groups))).code == 0
        is_refused(small, "groups", "group_refused", 100)
        one.push(b"".join(encode_frame(commit(f"Topic{number}", "g")) for number in range(STRANGERS_MAX + 300)))
        is_refused(small, "offsets", "offset_refused", 300)
        one.push(b"".join(encode_frame(commit(GOOD_TOPIC, "invented0", queue)) for queue in range(1000)))
        is_refused(small, "offsets", "offset_refused", 700)
        assert one.ask(send_request(GOOD_TOPIC)).code == 0


def commit(topic: str, group: str, queue: int = 0) -> Command:
    return request(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader(group, topic, queue, 1), oneway=True)


# --------------------------------------------------------------------------------------------------------- name server


def test_a_name_server_takes_no_bombs_and_keeps_what_it_has(abused: Abused) -> None:
    """What unfolds to more than any registration has, names nobody has, many settings."""
    bomb = bomb_of(128 * MIB)
    before = namesrv_refusals(abused)
    with (
        unharmed(abused, 64 * MIB + HEAP_SLACK),
        attackers(int(abused.namesrv_address.rpartition(":")[2]), 1) as (one,),
    ):
        asked = (
            (register("abuser", bomb, compressed=True), 1),
            (register("n" * 600), 1),
            (request(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("n", "k", "v" * (HEADER_SIZE_MAX // 2))), 0),
            (request(RequestCode.PUT_KV_CONFIG, body=bytes(2 * MIB)), 1),
            (request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(GOOD_TOPIC)), 0),
        )
        assert [one.ask(command).code for command, _ in asked] == [code for _, code in asked]
        for number in range(10):
            one.ask(
                request(RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("n", str(number), "v" * (HEADER_SIZE_MAX // 2)))
            )
    counts = {name: count - before[name] for name, count in namesrv_refusals(abused).items()}
    assert (counts["routes"], counts["bodies"]) == (1, 1)
    assert counts["settings"] > 1
    assert all(abused.lines(f"{name}_refused") for name in ("routes", "settings"))


def namesrv_refusals(up: Abused) -> dict[str, int]:
    return {name: up.page.refused(name, "orbitmq_namesrv") for name in ("routes", "settings", "bodies")}


def register(name: str, body: bytes = b"", *, compressed: bool = False) -> Command:
    header = RegisterBrokerHeader(name, "127.0.0.1:1", "abusers", "127.0.0.1:2", 0, compressed)
    return request(RequestCode.REGISTER_BROKER, header, body)


def bomb_of(size: int) -> bytes:
    packer = zlib.compressobj(9)
    block = bytes(16 * MIB)
    return b"".join([*(packer.compress(block) for _ in range(size // len(block))), packer.flush()])


# --------------------------------------------------------------------------------------------------------- descriptors


def test_a_broker_with_few_descriptors_refuses_connections_and_goes_on(narrow: Narrow) -> None:
    """Half of them are for connections; whoever comes beyond is told off at once, and nothing spins."""
    with unharmed(narrow, HEAP_SLACK):
        with attackers(narrow.port, FILES + 100):
            wait_until(lambda: narrow.page.refused("connections") >= FILES // 2 + 50, PATIENCE_S, "refusals")
            assert narrow.lines("too_many_connections") < FILES // 4
            wait_until(lambda: sleeps(narrow), PATIENCE_S, "an event loop that waits")
        wait_until(lambda: narrow.page.connections() < FILES // 4, PATIENCE_S, "room again")
        with attackers(narrow.port, 1) as (one,):
            assert one.ask(send_request(GOOD_TOPIC)).code == 0


def sleeps(up: Abused) -> bool:
    """Whether the event loop is found waiting more often than not. One that spins wants to run at every look, however
    little of the processor it gets.
    """
    found = 0
    for _ in range(LOOKS):
        found += Path(f"/proc/{up.running.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "S"
        time.sleep(0.005)
    return found > LOOKS // 2
