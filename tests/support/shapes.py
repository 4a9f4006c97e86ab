"""What two JSON bodies must have in common to be read alike: the same members of the same kinds. Knows no request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.message.javajson import ObjectKey, loads
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings

# Members of a body that need not be there, or may be more, and why.
LEFT_OUT = {
    ".minTimeStampStr", ".maxTimeStampStr", ".consumeTimeStampStr",  # the times again, as text; nobody reads them back
}  # fmt: skip
ADDED = {
    "dataVersion.counter", "dataVersion.timestamp",  # of the offsets: 5.x slaves need it
    "table.brokerActive", "table.getTransferredTps",  # what 5.x tools look for
    "table.differingGroups", "table.differingGroupsTotal",  # RocketMQ does not look for them, nor for what follows
    "table.buildForm", "table.damagedState", "table.diskHeldFor", "table.diskRefusesMessages",
    "table.eventLoopDelayMax",
    "table.replicationEpoch", "table.replicationOtherMasters", "table.replicationOtherMastersServing",
    "table.replicationRefusedSlaves", "table.replicationSupersededBy",
}  # fmt: skip
TABLES = {
    "offsetTable", "topicConfigTable", "subscriptionGroupTable", "data", "subscriptionTable", "correctionOffsets",
    "consumeStatsList",
}  # fmt: skip


def shape(value: Any, path: str = "") -> Iterator[str]:
    """Every member of a JSON value by its path; entries of tables count alike, whatever they are called."""
    name = path.rpartition(".")[2].removesuffix("[]")
    if isinstance(value, Mapping):
        for key, content in value.items():
            data = name in TABLES or isinstance(key, (int, ObjectKey))
            if isinstance(key, ObjectKey):
                yield from shape(key.fields if hasattr(key, "fields") else dict(key), f"{path}.<key>")
            yield from shape(content, f"{path}.*" if data else f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from shape(item, f"{path}[]")
    else:
        kind = "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
        yield f"{path}:{kind}"


def assert_same_shape(code: int, ours: bytes, java: bytes) -> None:
    if code == RequestCode.GET_BROKER_CONFIG:
        ours_pairs, java_pairs = decode_settings(ours), decode_settings(java)
        assert len(ours_pairs.keys() & java_pairs.keys()) > 60
        return
    found, expected = set(shape(loads(ours))), set(shape(loads(java)))
    named_apart = ("scheduleMessageOffset_", "commitLogDiskRatio_")
    missing = {p for p in expected - found if not any(p.partition(":")[0].endswith(end) for end in LEFT_OUT)}
    more = {p for p in found - expected if p.partition(":")[0] not in ADDED}
    assert not {p for p in missing if not any(part in p for part in named_apart)}
    assert not {p for p in more if not any(part in p for part in named_apart)}
