"""The properties text of a message: `name 0x01 value 0x02 name 0x01 value`, and the names with a meaning.

A pair with an empty name or an empty value does not survive reading; the last of equal names wins. Writers
leave no trailing 0x02, readers accept one. Pure text; must not know who sets which property when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAME_END: Final = "\x01"
PAIR_END: Final = "\x02"
PROPERTIES_SIZE_MAX: Final = 32767  # the stored length is a signed 16-bit number

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
BUYER_ID: Final = "BUYER_ID"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
UNIQ_KEY: Final = "UNIQ_KEY"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
INSTANCE_ID: Final = "INSTANCE_ID"
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
CLUSTER: Final = "CLUSTER"
MSG_TYPE: Final = "MSG_TYPE"
REPLY: Final = "reply"  # the MSG_TYPE of a reply
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_ID: Final = "__transactionId__"
SHARDING_KEY: Final = "__SHARDINGKEY"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
DEAD_LETTER_REASON: Final = "DEAD_LETTER_REASON"
IDEMPOTENCY_TOKEN: Final = "IDEMPOTENCY_TOKEN"  # noqa: S105 - the name of a property
EXPIRES_AT_MS: Final = "EXPIRES_AT_MS"
EXPIRES_AFTER_MS: Final = "EXPIRES_AFTER_MS"  # until the message is sent, when it becomes the one above
TIMES: Final = frozenset((TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS))
"""A message has one of them if its sender says when it is to be delivered."""

# Names the application may not set itself. RocketMQ leaves the transaction check names and
# INNER_MULTI_DISPATCH open, so they are open here too.
RESERVED: frozenset[str] = frozenset(
    (
        KEYS, TAGS, WAIT, DELAY, RETRY_TOPIC, REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, MIN_OFFSET, MAX_OFFSET,
        BUYER_ID, ORIGIN_MESSAGE_ID, TRANSFER_FLAG, CORRECTION_FLAG, MQ2_FLAG, RECONSUME_TIME, MSG_REGION, TRACE_ON,
        UNIQ_KEY, MAX_RECONSUME_TIMES, CONSUME_START_TIME, INSTANCE_ID, CORRELATION_ID, REPLY_TO_CLIENT, TTL,
        ARRIVE_TIME, PUSH_REPLY_TIME, CLUSTER, MSG_TYPE, INNER_MULTI_QUEUE_OFFSET,
    )
)  # fmt: skip


UNPAIRED: Final = "holds half of a surrogate pair, which no encoding can write"


def can_travel(text: str) -> bool:
    """Whether the text can be written as UTF-8; else it is `UNPAIRED`."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def encode_properties(properties: Mapping[str, str]) -> str:
    """The text of `properties` in their order."""
    return PAIR_END.join([name + NAME_END + value for name, value in properties.items()])


def decode_properties(text: str) -> dict[str, str]:
    """The pairs of `text` that RocketMQ's reader keeps; anything malformed is left out."""
    properties = {}
    for pair in text.split(PAIR_END):
        name, _, value = pair.partition(NAME_END)
        if name and value:
            properties[name] = value
    return properties


def find_property(properties: bytes, start_of_pair: bytes) -> bytes | None:
    """One value of an encoded text, the one that `decode_properties` would return, without decoding the rest.

    `start_of_pair` is the name followed by 0x01.
    """
    before, found, rest = properties.rpartition(start_of_pair)
    if not found:
        return None
    if not before or before[-1] == 2:
        value = rest.partition(b"\x02")[0]
        if value:
            return value
    end = len(before) + len(start_of_pair) - 1  # the name lies in a value, or has none: look strictly before it
    while (start := properties.rfind(start_of_pair, 0, end)) >= 0:
        if start == 0 or properties[start - 1] == 2:
            value_start = start + len(start_of_pair)
            value_end = properties.find(b"\x02", value_start)
            value = properties[value_start:] if value_end < 0 else properties[value_start:value_end]
            if value:
                return value
        end = start + len(start_of_pair) - 1
    return None


class EncodedProperties:
    """The properties of a stored message, each decoded on access."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def get(self, name: str) -> str | None:
        found = find_property(self._text, (name + NAME_END).encode())
        return found.decode("utf-8", "replace") if found is not None else None
