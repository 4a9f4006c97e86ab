"""Which brokers must have queues of a read, so that it is complete or fails.

A broker that stops leaves the routes of its topics, and what it stored looks as if it had never been. Its existence is
known only from elsewhere: from the options `expectBrokers` and `assign`, from the order configuration of a topic, and
from those who looked before it left. Knows no offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import BrokerAddresses, ClusterClient
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.queue_selection import QueueSelection

LEAVE_OUT = "take it out of that configuration, or set failOnDataLoss=false to read what is left"


@dataclass(frozen=True, order=True)
class Witness:
    """Something that knows a broker of a read."""

    broker: str
    topic: str
    """The topic that the broker has a queue of. Empty is any topic of the read."""
    claim: str
    remedy: str
    """What to do when the broker never comes back."""


def complete_queues(
    cluster: ClusterClient, options: ReadOptions, selection: QueueSelection, seen: Iterable[Witness] = ()
) -> dict[MessageQueue, BrokerAddresses]:
    """The queues of a read. `seen` are brokers that had some when the caller looked before.

    SourceError ORBITMQ_BROKER_UNAVAILABLE when a broker is missing that must have some, and those of
    `QueueSelection.checked`. With `failOnDataLoss=false` only the brokers that the options name must be there.
    """
    found = selection.find(cluster)
    there = {*found.queues, *found.closed}
    required = [*_named(options, selection)]
    if options.fail_on_data_loss:
        topics = () if selection.assigned else {*selection.named, *(queue.topic for queue in there)}
        required += [*_ordered(cluster.ordered(sorted(topics))), *seen]
    require_witnessed(required, there)
    return selection.checked(found)


def require_witnessed(required: Iterable[Witness], there: Collection[MessageQueue]) -> None:
    """SourceError ORBITMQ_BROKER_UNAVAILABLE for the first broker without a queue that it is said to have."""
    places = {place for queue in there for place in ((queue.broker_name, queue.topic), (queue.broker_name, ""))}
    missing = sorted(witness for witness in required if (witness.broker, witness.topic) not in places)
    if missing:
        first = missing[0]
        what = f"topic {first.topic}" if first.topic else "this read"
        raise SourceError(
            "ORBITMQ_BROKER_UNAVAILABLE",
            f"broker {first.broker}: no name server knows a queue of {what} there, but {first.claim}; without it the "
            f"read would miss what it stores. Start the broker; if it is gone for good, {first.remedy}",
        )


def _named(options: ReadOptions, selection: QueueSelection) -> Iterator[Witness]:
    for broker in options.broker_names:
        yield Witness(broker, "", "option expectBrokers names it", "leave it out of expectBrokers")
    for topic, level in (selection.assigned or {}).items():
        for broker in level if isinstance(level, dict) else ():
            yield Witness(broker, topic, "option assign names it", "leave it out of assign")


def _ordered(configured: Mapping[str, frozenset[str]]) -> Iterator[Witness]:
    for topic, brokers in configured.items():
        for broker in brokers:
            yield Witness(broker, topic, "the order configuration of the topic names it", LEAVE_OUT)
