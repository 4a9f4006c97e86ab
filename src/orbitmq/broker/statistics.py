"""The statistics of RocketMQ by topic, group and broker, and those of the store.

A request adds to the counters of one `Flow` that it looks up by name; everything else is periodic: once a second a
tenth of the flows is sampled and the store's totals are recorded, at midnight the totals of the day. Flows without
traffic for a day are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from orbitmq.broker.light_queues import folded
from orbitmq.message.topics import SCHEDULE_GROUP, SCHEDULE_TOPIC
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.rates import DAY, HOUR, MINUTE, SAMPLE_SECONDS, Durations, Flow, Rate, Snapshots
from orbitmq.store.engine import MessageStore

K = TypeVar("K", bound=Hashable)

FLOWS_MAX: Final = 200_000  # of one kind, some 200 MB; names come from the network. Further ones are counted together
SECONDS_A_MINUTE: Final = 60
WORTH_TELLING_SECONDS: Final = 0.001  # RocketMQ's table of durations begins with a millisecond

GroupKey = tuple[str, str]  # topic, group


class Flows(Generic[K]):
    """Name -> flow. A lookup in `table` is the only cost of a request; `make` adds the flow of a new name."""

    def __init__(self, clock: Clock, limit: int = FLOWS_MAX) -> None:
        self._clock = clock
        self._limit = limit
        self._others = Flow(clock.now_ms())
        self._turns: tuple[dict[K, Flow], ...] = tuple({} for _ in range(SAMPLE_SECONDS))
        self._dropped = 0  # messages of dropped flows
        self.table: dict[K, Flow] = {}

    def make(self, key: K) -> Flow:
        """The flow of a name that is not in the table yet."""
        if len(self.table) >= self._limit:
            return self._others
        flow = self.table[key] = Flow(self._clock.now_ms())
        min(self._turns, key=len)[key] = flow
        return flow

    @property
    def messages(self) -> int:
        """Of all names together, since the start."""
        return self._dropped + self._others.messages + sum(flow.messages for flow in self.table.values())

    def sample(self, turn: int, now_ms: int) -> None:
        """Sample those whose turn of SAMPLE_SECONDS it is, and drop the idle ones among them."""
        mine = self._turns[turn]
        for flow in mine.values():
            flow.sample(now_ms)
        self._drop([key for key, flow in mine.items() if flow.is_idle])

    def forget(self, is_gone: Callable[[K], bool]) -> None:
        """Drop the flows of names that no longer exist."""
        self._drop([key for key in self.table if is_gone(key)])

    def _drop(self, keys: list[K]) -> None:
        for key in keys:
            self._dropped += self.table.pop(key).messages
            for turn in self._turns:
                turn.pop(key, None)


class Totals:
    """Counters of the whole broker since its start."""

    __slots__ = ("got", "got_calls", "missed_calls", "put_failures")

    def __init__(self) -> None:
        self.got = 0  # messages handed to consumers
        self.got_calls = 0
        self.missed_calls = 0
        self.put_failures = 0


class Daily:
    """One running total at midnight before last, at last midnight, and now."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self.yesterday_morning = self.today_morning = 0

    @property
    def now(self) -> int:
        return self._read()

    def midnight(self) -> None:
        self.yesterday_morning, self.today_morning = self.today_morning, self.now


class Statistics:
    """All statistics of one broker. Call `tick` once a second."""

    def __init__(self, store: MessageStore, cluster: str, clock: Clock, *, with_light_queues: bool = False) -> None:
        self._store = store
        self._folds = with_light_queues
        self._cluster = cluster
        self._clock = clock
        self.started_ms = clock.now_ms()
        self.totals = totals = Totals()
        self.puts: Flows[str] = Flows(clock)
        self.gets: Flows[GroupKey] = Flows(clock)
        self.send_backs: Flows[GroupKey] = Flows(clock)
        self._broker_puts = Flow(self.started_ms)
        self._broker_gets = Flow(self.started_ms)
        self.on_put: Callable[[int, int, float], object] | None = None
        """Called with messages, bytes and seconds of each put, if set."""
        self.put_times = Durations()
        self.get_times = Durations()
        self.put_total = Daily(lambda: store.put_count)
        self.got_total = Daily(lambda: totals.got)
        self.store_rates = Snapshots(lambda: (store.put_count, totals.got_calls, totals.missed_calls, totals.got))
        self._seconds = 0
        self._day = self._today()

    # ------------------------------------------------------------------------------------------------------ counting

    def put(self, topic: str, messages: int, size: int, seconds: float) -> None:
        """What became of one put: so many messages of `size` bytes in the log, or a size of 0 when it was refused."""
        if seconds >= WORTH_TELLING_SECONDS:
            self.put_times.took(int(seconds * 1000))
        if not size:
            self.totals.put_failures += 1
            return
        topic = folded(topic) if self._folds else topic
        flow = self.puts.table.get(topic) or self.puts.make(topic)
        flow.messages += messages
        flow.bytes += size
        flow.calls += 1
        if self.on_put is not None:
            self.on_put(messages, size, seconds)

    def delivered(self, topic: str, size: int) -> None:
        """Count one delayed message stored under its topic, as read by RocketMQ's internal group."""
        self.put(topic, 1, size, 0)
        key = (SCHEDULE_TOPIC, SCHEDULE_GROUP)
        flow = self.gets.table.get(key) or self.gets.make(key)
        flow.messages += 1
        flow.bytes += size
        flow.calls += 1

    def got(self, topic: str, group: str, messages: int, size: int, seconds: float) -> None:
        """What one read for a group found, maybe nothing."""
        if seconds >= WORTH_TELLING_SECONDS:
            self.get_times.took(int(seconds * 1000))
        if not messages:
            self.totals.missed_calls += 1
            return
        key = (folded(topic), folded(group)) if self._folds else (topic, group)
        flow = self.gets.table.get(key) or self.gets.make(key)
        flow.messages += messages
        flow.bytes += size
        flow.calls += 1
        self.totals.got += messages
        self.totals.got_calls += 1

    def sent_back(self, topic: str, group: str) -> None:
        """Count one message that a group sent back. `topic` is the one it was first sent to."""
        key = (folded(topic), folded(group)) if self._folds else (topic, group)
        flow = self.send_backs.table.get(key) or self.send_backs.make(key)
        flow.messages += 1
        flow.calls += 1

    def forget_topic(self, topic: str) -> None:
        """Drop the statistics of a deleted topic."""
        self.puts.forget(lambda name: name == topic)
        for flows in (self.gets, self.send_backs):
            flows.forget(lambda key: key[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop the statistics of a deleted group."""
        for flows in (self.gets, self.send_backs):
            flows.forget(lambda key: key[1] == group)

    # ------------------------------------------------------------------------------------------------ once a second

    def tick(self) -> None:
        now_ms = self._clock.now_ms()
        turn = self._seconds % SAMPLE_SECONDS
        for flows in (self.puts, self.gets, self.send_backs):
            flows.sample(turn, now_ms)
        if turn == SAMPLE_SECONDS - 1:
            for flow in self._broker_flows():
                flow.sample(now_ms)
        self.store_rates.take(now_ms)
        self._seconds += 1
        if self._seconds % SECONDS_A_MINUTE == 0:
            self.put_times.finish_minute(self._store.put_count)
        if (today := self._today()) != self._day:
            self._day = today
            self.put_total.midnight()
            self.got_total.midnight()

    def _today(self) -> tuple[int, int]:
        """The day in the broker's local time, like RocketMQ's daily statistics."""
        local = time.localtime(self._clock.now_ms() // 1000)
        return local.tm_year, local.tm_yday

    def _broker_flows(self) -> tuple[Flow, Flow]:
        """The flows of the whole broker, brought up to now."""
        puts, gets = self._broker_puts, self._broker_gets
        puts.messages, gets.messages = self.puts.messages, self.totals.got
        return puts, gets

    # ------------------------------------------------------------------------------------------------------- reading

    def find(self, name: str, key: str) -> tuple[Rate, Rate, Rate] | None:
        """Minute, hour and day of one of RocketMQ's statistics; None for a name or key that was never counted."""
        if name not in FIGURES:
            return None
        kind, read = FIGURES[name]
        flow = self._flow(kind, key)
        now_ms = self._clock.now_ms()
        return None if flow is None else (read(flow, MINUTE, now_ms), read(flow, HOUR, now_ms), read(flow, DAY, now_ms))

    def consume_tps(self, topic: str, group: str) -> float:
        """Messages a second that the group got of the topic during the last minute."""
        flow = self.gets.table.get((topic, group))
        return 0.0 if flow is None else flow.of_messages(MINUTE, self._clock.now_ms()).tps

    def _flow(self, kind: str, key: str) -> Flow | None:
        if kind == "put":
            return self.puts.table.get(key)
        if kind == "broker":
            return self._broker_flows()[0] if key == self._cluster else None
        if kind == "broker-get":
            return self._broker_flows()[1] if key == self._cluster else None
        topic, _, group = key.partition("@")
        return (self.gets if kind == "get" else self.send_backs).table.get((topic, group))


# RocketMQ's name -> the flows, and which of their counters.
FIGURES: dict[str, tuple[str, Callable[[Flow, tuple[int, int], int], Rate]]] = {
    "TOPIC_PUT_NUMS": ("put", Flow.of_messages),
    "TOPIC_PUT_SIZE": ("put", Flow.of_bytes),
    "GROUP_GET_NUMS": ("get", Flow.of_messages),
    "GROUP_GET_SIZE": ("get", Flow.of_bytes),
    "SNDBCK_PUT_NUMS": ("send-back", Flow.of_messages),
    "BROKER_PUT_NUMS": ("broker", Flow.of_messages),
    "BROKER_GET_NUMS": ("broker-get", Flow.of_messages),
}
