"""Changes of a message's properties text before it is stored. Pure; the text is searched, not parsed."""

from __future__ import annotations

from typing import Final

from orbitmq.message.properties import CLUSTER, NAME_END, PAIR_END, WAIT, decode_properties

_WAIT: Final = WAIT + NAME_END


def waits_for_store(text: str) -> bool:
    """Whether the response must wait until the message is flushed and replicated; absent means yes."""
    if _WAIT not in text:
        return True
    return decode_properties(text).get(WAIT, "true").lower() == "true"


def without_wait(text: str) -> str:
    """The text without its WAIT pair, which RocketMQ does not store either."""
    at = text.find(_WAIT)
    while at >= 0:
        if at and text[at - 1] != PAIR_END:  # it is part of a value
            at = text.find(_WAIT, at + 1)
            continue
        end = text.find(PAIR_END, at)
        text = text[: max(at - 1, 0)] if end < 0 else text[:at] + text[end + 1 :]
        at = text.find(_WAIT, at)
    return text


def with_pair(text: str, name: str, value: str) -> str:
    """The text with one more pair at its end, where it wins over an earlier one of the same name."""
    separator = PAIR_END if text and text[-1] != PAIR_END else ""
    return f"{text}{separator}{name}{NAME_END}{value}"


def with_cluster(text: str, cluster: str) -> str:
    """The text with the cluster's name, which replies are addressed by."""
    return with_pair(text, CLUSTER, cluster)
