"""The schemas of topics in the key-value settings of name servers, which RocketMQ's keep as well.

A topic has a namespace of its own with a pair for each version, and a pair in the namespace of all topics, which holds
how versions must be compatible. Name servers do not know each other: a change goes to each of them, and what one of
them lacks is read from another.

The settings cannot be compared and set at once, so programs register one after the other: each puts a claim, and
registers when it then sees no other. Whoever comes later sees that claim and waits, and of several that meet the first
by the names of their claims stays while the others take theirs back. So a version is compared with every other, and
stays once a program has read it, as long as the programs share a name server. A claim that does not change for
`ABANDONED_S` belongs to a program that has ended, and is deleted by those that wait.

A pair that is no version, because it was damaged or because a later orbitmq wrote it, is skipped by whoever does not
need it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from orbitmq.errors import ConnectError, OrbitMQError, RemotingError, SchemaIllegal, SchemaIncompatible
from orbitmq.net.remoting import Remoting
from orbitmq.operations.kv import delete_kv, kv_table, put_kv
from orbitmq.schemas.compatibility import check, refusals
from orbitmq.schemas.model import (
    VERSIONS_MAX,
    Compatibility,
    Schema,
    SchemaVersion,
    decode_version,
    encode_version,
)

_log = logging.getLogger(__name__)

T = TypeVar("T")

TOPICS: Final = "ORBITMQ_SCHEMAS"
"""Namespace: topic -> compatibility."""
WAIT_MAX_S: Final = 60.0  # of a registration: twice what a program that ended with its claim holds others up
LOOK_S: Final = 0.1  # at most, between two looks at the claims; differs, so that programs do not meet again
RENEWED_S: Final = 5.0  # how often a claim that waits changes, to show that its program is there
HELD_MAX_S: Final = 20.0  # from a claim to the version: the claim may be renewed before, and two rounds of requests
ABANDONED_S: Final = 30.0  # longer than a program that registers leaves its claim unchanged
REFUSALS_SHOWN: Final = 10  # of an incompatible schema


def namespace_of(topic: str) -> str:
    """Namespace: number and schema -> version."""
    return f"{TOPICS}@{topic}"


def claims_of(topic: str) -> str:
    """Namespace: a random name for each program that registers -> how often it was renewed."""
    return f"ORBITMQ_SCHEMA_CLAIMS@{topic}"


@dataclass(frozen=True)
class TopicSchemas:
    """The schemas of a topic."""

    compatibility: Compatibility
    """What the next version must be able to do."""
    versions: Sequence[SchemaVersion]
    """By number; the last one is the latest."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """What is kept for the topic and is no version that can be read: its name, and why."""

    def by_id(self, schema_id: str) -> SchemaVersion | None:
        """The version with this schema."""
        return next((one for one in self.versions if one.schema.id == schema_id), None)


class SchemaStore:
    """Schemas at these name servers."""

    def __init__(self, remoting: Remoting, name_servers: Sequence[str], *, timeout_ms: float = 3000) -> None:
        self._remoting = remoting
        self._name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms

    async def topics(self) -> dict[str, Compatibility]:
        """Every topic with schemas. ConnectError if no name server responds."""
        return {topic: _mode(text) for topic, text in (await self._merged(TOPICS)).items()}

    async def of_topic(self, topic: str) -> TopicSchemas:
        """What the name servers that respond have between them. ConnectError if none does."""
        modes, tables = await asyncio.gather(self._merged(TOPICS), self._some(namespace_of(topic)))
        return TopicSchemas(_mode(modes.get(topic)), *versions_in(readable(tables)))

    async def register(
        self, topic: str, schema: Schema, now_ms: int, *, compatibility: Compatibility | None = None
    ) -> SchemaVersion:
        """Make `schema` the next version of `topic`; nothing changes if it is one already. `compatibility` is kept for
        later versions as well; without it that of the topic counts, and at first `BACKWARD`.

        SchemaIncompatible if it may not follow the versions there are, SchemaIllegal if it is not valid, if there are
        too many versions or one that cannot be read, or if others register for a minute; ConnectError unless every name
        server responds: a version that one lacks might be lost.
        """
        check(schema)
        found = await self._registered(topic, schema, compatibility)
        if found is None:
            async with self._turn(topic) as ends_s:
                found = await self._registered(topic, schema, compatibility, (now_ms, ends_s))
        assert found is not None, "it has been added"
        return found

    async def _registered(
        self, topic: str, schema: Schema, compatibility: Compatibility | None, add: tuple[int, float] | None = None
    ) -> SchemaVersion | None:
        """The version with this schema, at every name server. If there is none it is added, with the time of its
        registration and until when that is allowed; without them the result is None.
        """
        space = namespace_of(topic)
        modes, texts = await self._all(TOPICS), await self._all(space)
        mode = compatibility or _mode(_united(modes.values()).get(topic))
        found = TopicSchemas(mode, *versions_in(readable(texts.values())))
        known = found.by_id(schema.id)
        if known is not None:
            await self._complete(space, texts)
        elif add is None:
            return None
        else:
            now_ms, ends_s = add
            refuse_unreadable(topic, found)
            refuse_incompatible(topic, schema, found.versions, mode)
            known = SchemaVersion(_next_number(found), schema, now_ms)
            if asyncio.get_running_loop().time() > ends_s:
                raise ConnectError(f"a registration for topic {topic} took longer than {HELD_MAX_S:g} s; try again")
            key = f"{known.number:06d}-{schema.id}"
            await self._everywhere(partial(self._put, space, key, encode_version(known)))
        if any(table.get(topic) != mode.value for table in modes.values()):
            await self._everywhere(partial(self._put, TOPICS, topic, mode.value))
        return known

    async def _complete(self, space: str, texts: dict[str, dict[str, str]]) -> None:
        """Put what a name server lacks, such as one that is new or was away when it was removed elsewhere, or whose
        pair is damaged.
        """
        everything = readable(texts.values())
        for address, table in texts.items():
            for key, text in everything.items():
                if table.get(key) != text:
                    await self._put(space, key, text, address)

    async def remove(self, topic: str, number: int | None = None) -> int:
        """Remove one version, or everything that is kept for the topic; how many there were. ConnectError unless every
        name server responds.
        """

        def is_meant(text: str) -> bool:
            version = _version_or_none(text)
            return number is None or (version is not None and version.number == number)

        texts = readable((await self._all(namespace_of(topic))).values())
        return await self._remove(topic, texts, [key for key, text in texts.items() if is_meant(text)])

    async def remove_unreadable(self, topic: str, key: str) -> int:
        """Remove a pair that cannot be read, by its name in `TopicSchemas.unreadable`; how many there were.
        ConnectError unless every name server responds.
        """
        texts = readable((await self._all(namespace_of(topic))).values())
        return await self._remove(topic, texts, [one for one in versions_in(texts)[1] if one == key])

    async def _remove(self, topic: str, texts: dict[str, str], gone: Sequence[str]) -> int:
        for key in gone:
            await self._everywhere(partial(self._delete, namespace_of(topic), key))
        if len(gone) == len(texts):
            await self._everywhere(partial(self._delete, TOPICS, topic))
        return len(gone)

    # -------------------------------------------------------------------------------------------------------- claims

    @asynccontextmanager
    async def _turn(self, topic: str) -> AsyncIterator[float]:
        """Be the only program that registers for this topic, until the time of the loop that is yielded. SchemaIllegal
        if it takes too long to become that.
        """
        space, own = claims_of(topic), uuid.uuid4().hex
        try:
            try:
                async with asyncio.timeout(WAIT_MAX_S):
                    ends_s = await self._claimed(space, own)
            except TimeoutError:
                text = f"other programs have registered schemas of topic {topic} for {WAIT_MAX_S:g} s; try again"
                raise SchemaIllegal(text) from None
            yield ends_s
        finally:
            try:
                await self._everywhere(partial(self._delete, space, own))
            except OrbitMQError as error:  # the registration is over, and others wait until the claim is abandoned
                _log.warning("event=schema_claim_left topic=%s claim=%s error=%s", topic, own, error)

    async def _claimed(self, space: str, own: str) -> float:
        """Claim until there is no other claim; until when it holds."""
        loop = asyncio.get_running_loop()
        seen: dict[tuple[str, str], float] = {}
        renewal = 0
        while True:
            at_s = loop.time()
            await self._everywhere(partial(self._put, space, own, str(renewal)))
            renewal += 1
            others = await self._others(space, own, seen)
            while others and min(others) > own and loop.time() < at_s + RENEWED_S:
                others = await self._others_later(space, own, seen)
            if not others:
                return at_s + HELD_MAX_S
            if min(others) < own:
                await self._everywhere(partial(self._delete, space, own))
                while others:
                    others = await self._others_later(space, own, seen)

    async def _others_later(self, space: str, own: str, seen: dict[tuple[str, str], float]) -> set[str]:
        await asyncio.sleep(random.random() * LOOK_S)  # noqa: S311 - spreads programs, guards nothing
        return await self._others(space, own, seen)

    async def _others(self, space: str, own: str, seen: dict[tuple[str, str], float]) -> set[str]:
        """The claims of other programs. Those that have not changed for long are deleted."""
        now = asyncio.get_running_loop().time()
        claims = _united((await self._all(space)).values())
        claims.pop(own, None)
        dead = {key for key, text in claims.items() if now - seen.setdefault((key, text), now) > ABANDONED_S}
        for key in dead:
            await self._everywhere(partial(self._delete, space, key))
        return claims.keys() - dead

    # -------------------------------------------------------------------------------------------------- name servers

    async def _table(self, namespace: str, address: str) -> dict[str, str]:
        return await kv_table(self._remoting, address, namespace, timeout_ms=self._timeout_ms)

    async def _put(self, namespace: str, key: str, value: str, address: str) -> None:
        await put_kv(self._remoting, address, namespace, key, value, timeout_ms=self._timeout_ms)

    async def _delete(self, namespace: str, key: str, address: str) -> None:
        await delete_kv(self._remoting, address, namespace, key, timeout_ms=self._timeout_ms)

    async def _everywhere(self, change: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        """The results of all, when none is under way any more."""
        found = await asyncio.gather(*map(change, self._name_servers), return_exceptions=True)
        results = {}
        for address, result in zip(self._name_servers, found, strict=True):
            if isinstance(result, RemotingError):
                text = f"schemas are changed at every name server, and one of them does not respond: {result}"
                raise ConnectError(text) from result
            if isinstance(result, BaseException):
                raise result
            results[address] = result
        return results

    async def _all(self, namespace: str) -> dict[str, dict[str, str]]:
        return await self._everywhere(partial(self._table, namespace))

    async def _merged(self, namespace: str) -> dict[str, str]:
        return _united(await self._some(namespace))

    async def _some(self, namespace: str) -> list[dict[str, str]]:
        """The tables of the name servers that respond."""
        found = await asyncio.gather(
            *(self._table(namespace, address) for address in self._name_servers), return_exceptions=True
        )
        tables = [one for one in found if isinstance(one, dict)]
        errors = [one for one in found if isinstance(one, BaseException)]
        for error in errors:
            if not isinstance(error, OrbitMQError) or not tables:
                raise error
        return tables


def refuse_unreadable(topic: str, found: TopicSchemas) -> None:
    """SchemaIllegal if a version has to be compared with one that cannot be read."""
    if found.unreadable and found.compatibility is not Compatibility.NONE:
        key, reason = next(iter(found.unreadable.items()))
        raise SchemaIllegal(
            f"nothing can be compared with {key}, which is kept for topic {topic} and cannot be read ({reason}); "
            f"remove it with `orbitmq schema remove {topic} --unreadable`"
        )


def refuse_incompatible(topic: str, schema: Schema, versions: Sequence[SchemaVersion], mode: Compatibility) -> None:
    """SchemaIncompatible if `schema` may not follow these versions, SchemaIllegal if there are too many."""
    found = refusals(schema, versions, mode)
    if found:
        more = f"; and {len(found) - REFUSALS_SHOWN} more" if len(found) > REFUSALS_SHOWN else ""
        reasons = "; ".join(map(str, found[:REFUSALS_SHOWN])) + more
        raise SchemaIncompatible(f"the schema is not {mode} compatible with those of topic {topic}: {reasons}")
    if len(versions) >= VERSIONS_MAX:
        raise SchemaIllegal(
            f"topic {topic} has {len(versions)} versions, {VERSIONS_MAX} are allowed; remove those without messages"
        )


def _mode(text: str | None) -> Compatibility:
    return Compatibility(text) if text in set(Compatibility) else Compatibility.BACKWARD


def _united(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    return {key: text for table in reversed(list(tables)) for key, text in table.items()}


def readable(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The pairs of all: of each the first text that can be read, if one can."""
    found: dict[str, str] = {}
    for table in tables:
        for key, text in table.items():
            if key not in found or _version_or_none(found[key]) is None:
                found[key] = text
    return found


def _version_or_none(text: str) -> SchemaVersion | None:
    try:
        return decode_version(text)
    except SchemaIllegal:
        return None


def versions_in(texts: Mapping[str, str]) -> tuple[list[SchemaVersion], dict[str, str]]:
    """The versions in the pairs of a topic, by number, and the names of the pairs that are none, with the reasons. A
    schema counts once.
    """
    found: dict[str, SchemaVersion] = {}
    unreadable: dict[str, str] = {}
    for key in sorted(texts):
        try:
            version = decode_version(texts[key])
        except SchemaIllegal as error:
            unreadable[key] = str(error)
        else:
            found.setdefault(version.schema.id, version)
    return sorted(found.values(), key=lambda one: one.number), unreadable


def _next_number(found: TopicSchemas) -> int:
    """The names of pairs that cannot be read begin with their numbers, too."""
    numbers = [one.number for one in found.versions]
    numbers += [int(key[:6]) for key in found.unreadable if key[:6].isdecimal()]
    return max(numbers, default=0) + 1
