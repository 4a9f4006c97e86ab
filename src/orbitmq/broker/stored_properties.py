"""What the broker changes in a message's properties text before it is stored. Pure; the rest is never parsed."""

from __future__ import annotations

from orbitmq.message.properties import CLUSTER, NAME_END, PAIR_END, WAIT, decode_properties

_WAIT = WAIT + NAME_END


def waits_for_store(text: str) -> bool:
    """Whether the sender wants its answer only when the message is flushed and replicated; absent means yes."""
    if _find(text, _WAIT) < 0:
        return True
    return decode_properties(text).get(WAIT, "true").lower() == "true"


def without_wait(text: str) -> str:
    """The text without its WAIT pair: the wish is served now, and RocketMQ does not store it."""
    while (start := _find(text, _WAIT)) >= 0:
        end = text.find(PAIR_END, start)
        text = text[: max(start - 1, 0)] if end < 0 else text[:start] + text[end + 1 :]
    return text


def with_pair(text: str, name: str, value: str) -> str:
    """The text with one more pair at its end, where it wins over an earlier one of the same name."""
    pair = name + NAME_END + value
    if not text:
        return pair
    return text + pair if text.endswith(PAIR_END) else text + PAIR_END + pair


def with_cluster(text: str, cluster: str) -> str:
    """The text with the cluster's name, which replies are addressed by."""
    return with_pair(text, CLUSTER, cluster)


def has(text: str, name: str) -> bool:
    """Whether a pair of that name stands in the text, whatever its value."""
    return _find(text, name + NAME_END) >= 0


def _find(text: str, start_of_pair: str) -> int:
    """Where a pair begins, -1 if it does not: at the start of the text or after a separator."""
    at = text.find(start_of_pair)
    while at > 0 and text[at - 1] != PAIR_END:
        at = text.find(start_of_pair, at + 1)
    return at
