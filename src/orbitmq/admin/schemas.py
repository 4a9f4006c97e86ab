"""Schemas of topics: listed, shown, checked, registered and removed. `operations.schemas` says where they are kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from orbitmq.admin.bodies import real_topic
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session, nearest
from orbitmq.errors import BadArgument, ConfigurationError, Conflict, NotFound, SchemaIllegal, SchemaIncompatible
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import check_topic
from orbitmq.operations.schemas import SchemaStore, TopicSchemas, refuse_incompatible, refuse_unreadable
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.protoc import descriptors
from orbitmq.schemas.compatibility import check, refusals
from orbitmq.schemas.model import SCHEMA_ID, Compatibility, Schema, SchemaKind, SchemaVersion, json_text
from orbitmq.schemas.protobuf import schema_in, shown_text
from orbitmq.schemas.reading import BINARY

KIND_OF_SUFFIX = {
    ".avsc": SchemaKind.AVRO,
    ".json": SchemaKind.JSON,
    ".proto": SchemaKind.PROTOBUF,
    ".pb": SchemaKind.PROTOBUF,
    ".desc": SchemaKind.PROTOBUF,
}
EVERYWHERE = "every name server"


class SchemaTopic(Struct, frozen=True, rename="camel"):
    """A topic with schemas."""

    topic: str
    kind: str
    """json, avro or protobuf, of the latest version."""
    versions: int
    latest: int
    """The number of the latest version."""
    schema_id: str
    """Of the latest version."""
    compatibility: str
    """backward, forward, full or none; at a registry also with _transitive."""
    registered_at_ms: int | None
    """The time of the latest version; None at a registry, which does not say."""


class TopicSchemaVersion(Struct, frozen=True, rename="camel"):
    """A version of the schemas of a topic."""

    topic: str
    version: int
    schema_id: str
    """What messages have as SCHEMA_ID; the registry's id, with which their bodies begin."""
    kind: str
    """json, avro or protobuf."""
    message: str
    """Of Protobuf: the full name of the message; empty at a registry, whose schemas are whole files."""
    registered_at_ms: int | None
    """None at a registry, which does not say."""
    text: str
    """The schema: JSON, or the fields of the message; of a registry as it is there."""


class SchemaComparison(Struct, frozen=True, rename="camel"):
    """A schema compared with a registered version."""

    topic: str
    version: int
    compatible: bool
    reasons: list[str]
    """Which fields are not, and the rules."""


async def listed(session: Session, containing: str = "") -> Result[SchemaTopic]:
    """Topics that have schemas."""
    store = _store(session)
    modes = await store.topics()
    chosen = sorted(topic for topic in modes if containing.lower() in topic.lower())
    gathered = await session.each({topic: topic for topic in chosen}, store.of_topic)
    rows = [_row(topic, found) for topic, found in gathered.responses.items() if found.versions]
    warnings = [text for topic, found in gathered.responses.items() for text in _unreadable(topic, found)]
    return Result(rows, warnings, list(gathered.failures))


async def versions(session: Session, topic: str, number: int | None = None) -> Result[TopicSchemaVersion]:
    """All versions of a topic, or one, with a warning for what cannot be read. NotFound if there is none."""
    found = await _of_topic(session, topic)
    chosen = [one for one in found.versions if number in (None, one.number)]
    if not chosen and number is not None:
        known = ", ".join(str(one.number) for one in found.versions) or "none that can be read"
        raise NotFound(f"topic {topic} has no version {number} of its schemas", f"its versions are {known}")
    return Result([_version(topic, one) for one in chosen], _unreadable(topic, found))


async def named_by(session: Session, messages: Iterable[MessageExt]) -> Result[Schema]:
    """The schemas of Avro and Protobuf that messages name, as far as name servers have them."""
    wanted = {(real_topic(one), one.properties[SCHEMA_ID]) for one in messages if SCHEMA_ID in one.properties}
    gathered = await session.each({topic: topic for topic, _ in wanted}, _store(session).of_topic)
    found = [
        version.schema
        for topic, schema_id in wanted
        if (topic_schemas := gathered.responses.get(topic)) and (version := topic_schemas.by_id(schema_id))
    ]
    return Result([one for one in found if one.kind in BINARY], failures=list(gathered.failures))


async def compared(
    session: Session, topic: str, schema: Schema, compatibility: Compatibility | None
) -> Result[SchemaComparison]:
    """The comparison with each version. NotFound if the topic has none, Conflict if one is not compatible."""
    found = await _of_topic(session, topic)
    mode = compatibility or found.compatibility
    _refuse(topic, schema, found.versions, mode)
    rows = [
        SchemaComparison(topic, one.number, not (reasons := _reasons(schema, one, mode)), reasons)
        for one in found.versions
    ]
    return Result(rows, _unreadable(topic, found))


async def plan_register(
    session: Session, topic: str, schema: Schema, compatibility: Compatibility | None, clock: Clock
) -> Plan:
    """Make `schema` the next version. Conflict if it is not compatible; nothing changes if it is one already."""
    check_topic(topic)
    store = _store(session)
    found = await store.of_topic(topic)
    known = found.by_id(schema.id)
    mode = compatibility or found.compatibility
    if known is None:
        try:
            refuse_unreadable(topic, TopicSchemas(mode, found.versions, found.unreadable))
        except SchemaIllegal as error:
            raise Conflict(str(error)) from error
        _refuse(topic, schema, found.versions, mode)
    plan = Plan(f"register a schema of topic {topic}", only_adds=True)
    register = partial(_register, store, topic, schema, clock, compatibility)
    before = known.schema.id if known is not None else None
    step = Step(EVERYWHERE, "register schema", topic, before, schema.id)
    plan.changes.append(Change(step, register, partial(_registered, store, topic, schema)))
    if found.versions and mode is not found.compatibility:
        change = Step(EVERYWHERE, "set compatibility", topic, found.compatibility.value, mode.value)
        plan.changes.append(Change(change, register, partial(_compatibility, store, topic)))
    return plan


async def plan_remove(session: Session, topic: str, number: int | None, *, unreadable: bool = False) -> Plan:
    """Remove one version, or everything that is kept for the topic, or with `unreadable` only what cannot be read.
    NotFound if there is none, BadArgument for a number and `unreadable`.
    """
    if unreadable and number is not None:
        raise BadArgument("what cannot be read has no number", "give --version or --unreadable")
    chosen = [] if unreadable else (await versions(session, topic, number)).items
    damaged = list((await _of_topic(session, topic)).unreadable) if number is None else []
    if unreadable and not damaged:
        raise NotFound(f"topic {topic} has no schema that cannot be read", "`orbitmq schema show` lists its versions")
    store = _store(session)
    plan = Plan(
        f"remove schema version {number} of topic {topic}"
        if number is not None
        else f"remove the unreadable schemas of topic {topic}"
        if unreadable
        else f"remove all schemas of topic {topic}"
    )
    for one in chosen:
        step = Step(EVERYWHERE, "remove schema", f"{topic}/{one.version}", one.schema_id, None)
        make = partial(_remove, store, topic, one.version)
        plan.changes.append(Change(step, make, partial(_still_there, store, topic, one.version)))
    for key in damaged:
        step = Step(EVERYWHERE, "remove schema", f"{topic}/{key}", "unreadable", None)
        make = partial(_remove_unreadable, store, topic, key)
        plan.changes.append(Change(step, make, partial(_still_damaged, store, topic, key)))
    return plan


def kind_of(text: str | None) -> SchemaKind | None:
    """The kind of this name. BadArgument for another."""
    if text is None:
        return None
    try:
        return SchemaKind(text)
    except ValueError:
        raise BadArgument(f"there is no kind {text} of schemas", f"use {', '.join(SchemaKind)}") from None


def compatibility_of(text: str | None) -> Compatibility | None:
    """The compatibility of this name. BadArgument for another."""
    if text is None:
        return None
    try:
        return Compatibility(text)
    except ValueError:
        raise BadArgument(f"there is no compatibility {text}", f"use {', '.join(Compatibility)}") from None


def refuse_compatibility(text: str | None) -> None:
    """BadArgument for a compatibility with a registry."""
    if text is not None:
        raise BadArgument("a registry has its own compatibility", "leave --compatibility out, and set it there")


def schema_of_file(path: Path, kind: SchemaKind | None, message: str) -> Schema:
    """The schema in a file: Avro and JSON Schema as JSON, Protobuf as `.proto` or as descriptors. BadArgument for a
    file that is none, or whose kind its name does not say.
    """
    chosen = kind or KIND_OF_SUFFIX.get(path.suffix)
    if chosen is None:
        raise BadArgument(f"the name of {path} does not say its kind", "give --kind json, avro or protobuf")
    if message and chosen is not SchemaKind.PROTOBUF:
        raise BadArgument(f"a message has a name in Protobuf, and {path} is {chosen}", "leave --message out")
    try:
        if chosen is SchemaKind.PROTOBUF:
            schema = schema_in(descriptors(path), message)
        else:
            schema = Schema(chosen, json_text(json.loads(path.read_text(encoding="utf-8"))))
        check(schema)
    except ImportError as error:
        raise BadArgument("schemas of Avro need a library", "pip install 'orbitmq[avro]'") from error
    except OSError as error:
        raise BadArgument(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError, ConfigurationError, SchemaIllegal) as error:
        raise BadArgument(f"{path}: {error}") from error
    return schema


def _store(session: Session) -> SchemaStore:
    return SchemaStore(session.remoting, session.name_servers, timeout_ms=session.timeout_ms)


async def _of_topic(session: Session, topic: str) -> TopicSchemas:
    store = _store(session)
    found = await store.of_topic(topic)
    if not found.versions and not found.unreadable:
        near = nearest(topic, set(await store.topics()))
        raise NotFound(f"topic {topic} has no schema", near or "`orbitmq schema list` shows those that have")
    return found


def _refuse(topic: str, schema: Schema, earlier: Sequence[SchemaVersion], mode: Compatibility) -> None:
    try:
        refuse_incompatible(topic, schema, earlier, mode)
    except SchemaIncompatible as error:
        raise Conflict(str(error), "change the schema, or give another --compatibility") from error
    except SchemaIllegal as error:
        raise Conflict(str(error)) from error


def _unreadable(topic: str, found: TopicSchemas) -> list[str]:
    return [
        f"{key}, which is kept for topic {topic}, cannot be read: {reason}; "
        f"remove it with `orbitmq schema remove {topic} --unreadable`"
        for key, reason in found.unreadable.items()
    ]


def _reasons(schema: Schema, version: SchemaVersion, mode: Compatibility) -> list[str]:
    return [str(one) for one in refusals(schema, [version], mode)]


def _row(topic: str, found: TopicSchemas) -> SchemaTopic:
    last = found.versions[-1]
    return SchemaTopic(
        topic, last.schema.kind.value, len(found.versions), last.number, last.schema.id, found.compatibility.value,
        last.registered_at_ms,
    )  # fmt: skip


def _version(topic: str, one: SchemaVersion) -> TopicSchemaVersion:
    schema = one.schema
    text = shown_text(schema) if schema.kind is SchemaKind.PROTOBUF else schema.text
    return TopicSchemaVersion(
        topic, one.number, schema.id, schema.kind.value, schema.message, one.registered_at_ms, text
    )


async def _register(
    store: SchemaStore, topic: str, schema: Schema, clock: Clock, compatibility: Compatibility | None
) -> None:
    try:
        await store.register(topic, schema, clock.now_ms(), compatibility=compatibility)
    except SchemaIllegal as error:  # another program was faster
        raise Conflict(str(error)) from error


async def _registered(store: SchemaStore, topic: str, schema: Schema) -> str | None:
    return schema.id if (await store.of_topic(topic)).by_id(schema.id) else None


async def _compatibility(store: SchemaStore, topic: str) -> str:
    return (await store.of_topic(topic)).compatibility.value


async def _remove(store: SchemaStore, topic: str, number: int) -> None:
    await store.remove(topic, number)


async def _remove_unreadable(store: SchemaStore, topic: str, key: str) -> None:
    await store.remove_unreadable(topic, key)


async def _still_damaged(store: SchemaStore, topic: str, key: str) -> str | None:
    return "unreadable" if key in (await store.of_topic(topic)).unreadable else None


async def _still_there(store: SchemaStore, topic: str, number: int) -> str | None:
    found = (await store.of_topic(topic)).versions
    return next((one.schema.id for one in found if one.number == number), None)
