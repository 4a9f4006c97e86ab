"""Flow control by turning its state machine: no socket, no loop, no clock."""

from __future__ import annotations

import itertools
import math

import pytest

from orbitmq.net.budget import COUNTED_FROM
from orbitmq.net.flow import OPEN_BYTES_MAX, OPEN_COUNTED_FROM, OPEN_REQUESTS_MAX, READING, STOPPED, TRANSITIONS, Flow


def test_the_table_covers_every_state_and_reads_exactly_when_nothing_holds() -> None:
    assert set(TRANSITIONS) == set(itertools.product((READING, STOPPED), (False, True)))
    assert all(state is (STOPPED if held else READING) for (_, held), (state, _) in TRANSITIONS.items())


@pytest.mark.parametrize(("is_unread", "has_unserved"), list(itertools.product((False, True), repeat=2)))
def test_a_server_stops_reading_where_a_client_reads_on(is_unread: bool, has_unserved: bool) -> None:
    server, client = Flow(serving=True), Flow(serving=False)
    server.is_unread = client.is_unread = is_unread
    assert server.regulate(has_unserved, False, 0.0) is not (is_unread or has_unserved)
    assert client.regulate(has_unserved, False, 0.0), "two full buffers would wait for each other"


@pytest.mark.parametrize("serving", [True, False])
@pytest.mark.parametrize(
    ("count", "size", "is_tight", "reads"),
    [
        (OPEN_REQUESTS_MAX - 1, 0, False, True),
        (OPEN_REQUESTS_MAX, 0, False, False),
        (1, OPEN_BYTES_MAX - 1, False, True),
        (1, OPEN_BYTES_MAX, False, False),
        (1, OPEN_COUNTED_FROM + 1, True, False),
        (1, OPEN_COUNTED_FROM, True, True),
    ],
)
def test_too_many_open_requests_stop_either_side(
    serving: bool, count: int, size: int, is_tight: bool, reads: bool
) -> None:
    flow = Flow(serving=serving)
    must_check = [flow.begin(size) for _ in range(count)]
    assert flow.regulate(False, is_tight, 0.0) is reads
    assert any(must_check) or reads, "nothing stops the reading unless a begin asks for the check"
    must_check = [flow.end(size) for _ in range(count)]
    assert must_check[0] or reads, "the first end asks for the check that lets the reading go on"
    assert flow.regulate(False, is_tight, 0.0)
    assert (flow.open_requests, flow.open_bytes, flow.counted_bytes) == (0, 0, 0)


def test_a_frame_is_timed_from_its_first_byte_and_not_while_stopped() -> None:
    flow = Flow(serving=True)
    assert flow.awaits_frame_since == math.inf
    flow.receive(10, is_new=True, now=1.0)
    flow.receive(20, is_new=False, now=2.0)
    assert flow.awaits_frame_since == 1.0
    flow.is_unread = True
    flow.regulate(False, False, 3.0)
    assert flow.awaits_frame_since == math.inf, "it is not the peer who keeps the rest from arriving"
    flow.is_unread = False
    flow.regulate(False, False, 9.0)
    assert flow.awaits_frame_since == 9.0
    flow.regulate(False, False, 10.0)
    assert flow.awaits_frame_since == 9.0, "a pause that did not stop the connection changes nothing"
    flow.receive(0, is_new=True, now=11.0)
    assert flow.awaits_frame_since == math.inf


def test_only_large_rests_of_frames_count() -> None:
    flow = Flow(serving=True)
    assert not flow.receive(COUNTED_FROM, is_new=True, now=0.0)
    assert flow.receive(COUNTED_FROM + 1, is_new=False, now=0.0)
    assert flow.frame_bytes == COUNTED_FROM + 1
    assert flow.receive(5, is_new=True, now=0.0)
    assert flow.frame_bytes == 0
