"""Option bodySchema=topic: the schema that the name servers keep for the topic. Runs on the driver."""

from __future__ import annotations

import json

from orbitmq.operations.schemas import namespace_of, versions_in
from orbitmq.schemas.model import encode_version
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.bodies.schema import OF_TOPIC, TOPIC
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read_tasks import cluster_of


def with_topic_schema(options: ReadOptions) -> ReadOptions:
    """The options with the versions of the topic in place of `topic`. SourceError for a read of several topics, or of
    one without schemas."""
    if options.body_schema != TOPIC or options.body_format == RAW:
        return options
    if len(options.topics) != 1 or options.subscribe_pattern:
        raise bad_option("option bodySchema=topic is for a read of one topic; set subscribe")
    (topic,) = options.topics
    versions, unreadable = versions_in(cluster_of(options).pairs(namespace_of(topic)))
    if not versions:
        damaged = "".join(f" that can be read ({name}: {why})" for name, why in unreadable.items())
        raise bad_option(
            f"option bodySchema=topic: topic {topic} has no schema{damaged}; register one with "
            "`orbitmq schema register`"
        )
    return options.replace(body_schema=OF_TOPIC + json.dumps([encode_version(one) for one in versions]))
