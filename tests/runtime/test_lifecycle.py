"""Parts start in order and stop in the reverse order; none is left behind by a failed start."""

from __future__ import annotations

import pytest

from orbitmq.runtime.lifecycle import Lifecycle, Stage


class Steps(list[str]):
    """What was done, in order."""

    def step(self, text: str) -> None:
        self.append(text)

    async def later(self, text: str) -> None:
        self.append(text)

    def part(self, name: str) -> Stage:
        return Stage(
            lambda: self.step(f"start {name}"), lambda: self.later(f"stop {name}"), lambda: self.step(f"drop {name}")
        )


async def test_parts_stop_in_the_reverse_order_of_their_start() -> None:
    steps = Steps()
    lifecycle = Lifecycle((steps.part("store"), Stage(stop=lambda: steps.step("stop held")), steps.part("server")))
    await lifecycle.start()
    assert steps == ["start store", "start server"]
    await lifecycle.stop()
    assert steps[2:] == ["stop server", "stop held", "stop store"]


async def test_a_failed_start_abandons_every_part_and_says_why() -> None:
    steps = Steps()

    async def fail() -> None:
        raise OSError("no disk")

    lifecycle = Lifecycle((steps.part("a"), Stage(fail, lambda: steps.step("stop b")), steps.part("c")))
    with pytest.raises(OSError, match="no disk"):
        await lifecycle.start()
    assert steps == ["start a", "drop c", "stop b", "drop a"]


async def test_a_failed_start_says_why_even_if_a_part_cannot_be_ended(caplog: pytest.LogCaptureFixture) -> None:
    def start() -> None:
        raise OSError("the reason")

    def end() -> None:
        raise OSError("cannot end")

    with pytest.raises(OSError, match="the reason"):
        await Lifecycle((Stage(stop=end), Stage(start))).start()
    assert "event=part_not_stopped" in caplog.text


@pytest.mark.parametrize("end", ["stop", "abandon"])
async def test_a_part_that_cannot_be_ended_keeps_no_other_from_ending(end: str) -> None:
    steps = Steps()

    def fail() -> None:
        raise OSError("the disk does not answer")

    lifecycle = Lifecycle((steps.part("access"), Stage(stop=fail), steps.part("server")))
    await lifecycle.start()
    with pytest.raises(OSError, match="does not answer"):
        await getattr(lifecycle, end)()
    assert [text.split()[1] for text in steps[2:]] == ["server", "access"]
