"""Option bodySchema=topic: the schema that the name servers, or a registry, keep for the topic. Runs on the driver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.operations.registry import Registry, RegistryOptions, subject_of
from orbitmq.operations.schemas import TopicSchemas, namespace_of, readable, versions_in
from orbitmq.schemas.model import SchemaVersion, encode_version
from orbitmq.spark.bodies.options import RAW
from orbitmq.spark.bodies.schema import OF_TOPIC, TOPIC
from orbitmq.spark.cluster_options import bad_option
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.read_tasks import cluster_of


def with_topic_schema(options: ReadOptions) -> ReadOptions:
    """The options with the versions of the topic in place of `topic`. SourceError for a read of several topics, or of
    one without schemas."""
    if options.body_schema != TOPIC or options.body_format == RAW:
        if options.schema_registry:
            raise bad_option("option schemaRegistry needs bodySchema=topic, and a bodyFormat")
        return options
    if len(options.topics) != 1 or options.subscribe_pattern:
        raise bad_option("option bodySchema=topic is for a read of one topic; set subscribe")
    (topic,) = options.topics
    versions: Sequence[SchemaVersion]
    unreadable: Mapping[str, str]
    if options.schema_registry:
        place, found = _at_registry(options, topic)
        versions, unreadable = found.versions, found.unreadable
    else:
        place = f"topic {topic}"
        versions, unreadable = versions_in(readable(cluster_of(options).pairs(namespace_of(topic))))
    if not versions:
        damaged = "".join(f" that can be read ({name}: {why})" for name, why in unreadable.items())
        raise bad_option(
            f"option bodySchema=topic: {place} has no schema{damaged}; register one with `orbitmq schema register`"
        )
    return options.replace(body_schema=OF_TOPIC + json.dumps([encode_version(one) for one in versions]))


def _at_registry(options: ReadOptions, topic: str) -> tuple[str, TopicSchemas]:
    """The subject, and its versions."""
    from orbitmq.client.schema_registry import registry_options  # here, as other reads load no client
    from orbitmq.client.settings import ClientSettings, complete

    given: ClientSettings = {"schema_registry": options.schema_registry}
    try:
        settings = complete(ClientSettings, given)
        subject = subject_of(options.schema_registry_subject or settings["schema_registry_subject"], topic, None)
        reached = registry_options(settings)
        if reached is None:
            raise ConfigurationError("the URL is empty")
        found = asyncio.run(_of_subject(reached, subject))
    except OrbitMQError as error:
        raise bad_option(f"option schemaRegistry: {error}") from error
    return f"subject {subject} of the registry", found


async def _of_subject(reached: RegistryOptions, subject: str) -> TopicSchemas:
    registry = Registry(reached)
    try:
        return await registry.of_subject(subject)
    finally:
        await registry.close()
