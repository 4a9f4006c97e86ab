"""What the bench of several brokers makes of its windows."""

from __future__ import annotations

import pytest

from bench.cores import BURST, Bursts, Host, Window, failures, ratio
from bench.growth import Target
from bench.growth_load import Meter, Peer, frame
from orbitmq.wire.codes import ResponseCode


def host(*windows: list[float]) -> Host:
    found = Host(str(len(windows[0])), Target((), ()))
    found.windows["send"] = [Window(costs, [0.001], 0.5, "") for costs in windows]
    return found


def test_a_ratio_is_of_windows_of_the_same_round() -> None:
    one, two = host([10.0], [20.0], [40.0]), host([10.0, 12.0], [20.0, 24.0], [40.0, 48.0])
    assert ratio(two, one, "send") == pytest.approx(1.1)
    assert ratio(one, one, "send") == 1


@pytest.mark.parametrize(
    ("work", "delivered", "errors", "named"),
    [
        ("send", 0, 0, []),
        ("send", 0, 2, ["2 sends were refused"]),
        ("send and pull", 995, 0, []),
        ("send and pull", 900, 0, ["900 of 1000 messages were pulled"]),
    ],
)
def test_a_window_without_all_its_messages_is_no_measurement(
    work: str, delivered: int, errors: int, named: list[str]
) -> None:
    meters = [
        Meter(messages=500, delivered=delivered // 2, errors=errors),
        Meter(500, delivered=delivered - delivered // 2),
    ]
    assert list(failures(work, meters)) == named


def test_a_burst_is_one_write_and_its_responses_count_from_when_it_was_due() -> None:
    written: list[bytes] = []
    peer, meter = Peer(), Meter(is_open=True)
    peer.ask = written.append  # type: ignore[method-assign]
    bursts = Bursts(peer, meter)
    bursts.go(0.0)
    assert len(written) == 1
    assert written[0].count(b"order-") == BURST
    peer.heard(frame(ResponseCode.SUCCESS, {})[4:])
    peer.heard(frame(ResponseCode.SYSTEM_BUSY, {})[4:])
    assert (meter.messages, meter.errors) == (1, 1)
    assert meter.times[0] > 0
