"""Whether a message is a timer message, and may be: it is then addressed to the timer topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.topics import Topics
from orbitmq.errors import MessageIllegal
from orbitmq.message.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from orbitmq.message.timers import RecallHandle, is_delayed_by_level, requested_ms, without_request
from orbitmq.message.topics import RETRY_PREFIX, TIMER_TOPIC
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutResult, PutStatus, illegal

# TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS and TIMER_ROLL_TIMES, which are added until the message is delivered.
GROWTH_LATER: Final = 100
NOT_ENABLED: Final = PutResult(PutStatus.WHEEL_TIMER_NOT_ENABLE)


class TimerAcceptance:
    """Readdresses timer messages. `waiting_with` returns how many wait for the same second as one due then."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        options: BrokerOptions,
        clock: Clock,
        waiting_with: Callable[[int], int],
    ) -> None:
        self._store = store
        self._topics = topics
        self._options = options
        self._clock = clock
        self._waiting_with = waiting_with

    def put_aside(self, record: PutRecord) -> PutResult | None:
        """Address a message to the timer topic if its sender names a time in the future. Returns the refusal of one
        that may not be delivered then.
        """
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        if is_delayed_by_level(properties):  # which wins
            record.properties = encode_properties(without_request(properties)).encode()
            return None
        now_ms = self._clock.now_ms()
        try:
            due_ms = requested_ms(properties, now_ms)
        except MessageIllegal as error:
            return illegal(str(error))
        if due_ms is None:
            return None
        if not self._options.timer_wheel_enable:
            return NOT_ENABLED
        if due_ms <= now_ms:
            if TIMER_DEL_UNIQKEY in properties:
                return illegal("a message cannot be recalled after the time at which it is delivered")
            return None
        limit_s = self._options.timer_max_delay_s
        if due_ms - now_ms > limit_s * 1000:
            return illegal(f"it is to be delivered in {(due_ms - now_ms) // 1000} s, timerMaxDelaySec is {limit_s}")
        most = self._options.timer_congest_num_each_slot
        if TIMER_DEL_UNIQKEY not in properties and self._waiting_with(due_ms) > most:
            return PutResult(PutStatus.WHEEL_TIMER_FLOW_CONTROL, reason=str(most))
        properties[TIMER_OUT_MS] = str(due_ms - 1)
        properties[REAL_TOPIC] = record.topic
        properties[REAL_QID] = str(record.queue_id)
        record.properties = encode_properties(properties).encode()
        refusal = self._store.refused_later(record, record.topic, GROWTH_LATER)
        record.topic, record.queue_id = self._topics.create_for_system(TIMER_TOPIC, 1).name, 0
        return refusal

    def handle(self, record: PutRecord) -> str:
        """What recalls a message that was put aside; "" for one that cannot be recalled."""
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        topic, unique_id = properties.get(REAL_TOPIC, ""), properties.get(UNIQ_KEY, "")
        if not topic or not unique_id or topic.startswith(RETRY_PREFIX):
            return ""
        due_ms = int(properties[TIMER_OUT_MS]) + 1
        return RecallHandle(topic, self._options.broker_name, due_ms, unique_id).encode()
