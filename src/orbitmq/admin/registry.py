"""Schemas of a registry with Confluent's REST interface: listed, shown, checked and registered. Its subjects take the
place of topics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.schemas import SchemaComparison, SchemaTopic, TopicSchemaVersion
from orbitmq.admin.session import Session, nearest
from orbitmq.client.schema_registry import registry_options
from orbitmq.client.settings import ClientSettings, complete
from orbitmq.errors import BadArgument, ConfigurationError, Conflict, NotFound, SchemaIllegal
from orbitmq.operations.registry import Check, KeptVersion, Registry
from orbitmq.schemas.model import Schema


@asynccontextmanager
async def registry_at(url: str) -> AsyncIterator[Registry]:
    """The registry at this URL, with user, secret and certificates of the environment, as clients have them.
    BadArgument for a URL that is none.
    """
    given: ClientSettings = {"schema_registry": url}
    try:
        options = registry_options(complete(ClientSettings, given))
        if options is None:
            raise ConfigurationError("the URL is empty")
        registry = Registry(options)
    except ConfigurationError as error:
        raise BadArgument(f"--registry: {error}") from error
    try:
        yield registry
    finally:
        await registry.close()


async def listed(session: Session, url: str, containing: str = "") -> Result[SchemaTopic]:
    """Subjects, with the latest version."""
    async with registry_at(url) as registry:
        chosen = sorted(one for one in await registry.subjects() if containing.lower() in one.lower())
        gathered = await session.each({subject: subject for subject in chosen}, partial(_latest, registry))
        return gathered.result()


async def versions(url: str, subject: str, number: int | None = None) -> Result[TopicSchemaVersion]:
    """The newest versions of a subject, 100 at most, or one. NotFound if there is none."""
    async with registry_at(url) as registry:
        numbers = await _numbers(registry, subject)
        if number is None:
            found = await registry.versions(subject)
        elif number in numbers:
            found = [await registry.version(subject, number)]
        else:
            known = ", ".join(map(str, numbers))
            raise NotFound(f"subject {subject} has no version {number}", f"its versions are {known}")
        return Result([_version(subject, one) for one in found])


async def compared(url: str, subject: str, schema: Schema) -> Result[SchemaComparison]:
    """What the registry says of the schema and its versions. NotFound if the subject has none, Conflict if one is not
    compatible.
    """
    async with registry_at(url) as registry:
        await _numbers(registry, subject)
        found = await _checked(registry, subject, schema)
        return Result([SchemaComparison(subject, one.version, one.compatible, one.reasons) for one in found])


async def plan_register(url: str, subject: str, schema: Schema) -> Plan:
    """Make `schema` the next version. Conflict if the registry refuses it; nothing changes if it is one already."""
    async with registry_at(url) as registry:
        before = await _found(registry, subject, schema)
        if before is None:
            await _checked(registry, subject, schema)
    plan = Plan(f"register a schema of subject {subject}", only_adds=True)
    step = Step(url, "register schema", subject, before, schema.id)
    plan.changes.append(
        Change(step, partial(_register, url, subject, schema), partial(_read_back, url, subject, schema))
    )
    return plan


async def _checked(registry: Registry, subject: str, schema: Schema) -> list[Check]:
    try:
        found = await registry.checked(subject, schema)
    except SchemaIllegal as error:
        raise Conflict(str(error)) from error
    reasons = [f"version {one.version}: {'; '.join(one.reasons) or 'no reason'}" for one in found if not one.compatible]
    if reasons:
        text = f"the registry refuses the schema for subject {subject}: {'; '.join(reasons)}"
        raise Conflict(text, "change the schema, or the subject's compatibility at the registry")
    return found


async def _numbers(registry: Registry, subject: str) -> list[int]:
    numbers = await registry.numbers(subject)
    if not numbers:
        near = nearest(subject, set(await registry.subjects()))
        raise NotFound(f"the registry has no subject {subject}", near or "`orbitmq schema list` shows those it has")
    return numbers


async def _latest(registry: Registry, subject: str) -> SchemaTopic:
    numbers, last = await registry.numbers(subject), await registry.version(subject, "latest")
    level = await registry.level(subject)
    return SchemaTopic(subject, last.kind.value, len(numbers), last.version, str(last.id), level.lower(), None)


def _version(subject: str, one: KeptVersion) -> TopicSchemaVersion:
    return TopicSchemaVersion(subject, one.version, str(one.id), one.kind.value, "", None, one.schema)


async def _found(registry: Registry, subject: str, schema: Schema) -> str | None:
    try:
        return schema.id if await registry.find(subject, schema) else None
    except SchemaIllegal as error:
        raise Conflict(str(error)) from error


async def _register(url: str, subject: str, schema: Schema) -> None:
    async with registry_at(url) as registry:
        try:
            await registry.register(subject, schema)
        except SchemaIllegal as error:  # another program was faster
            raise Conflict(str(error)) from error


async def _read_back(url: str, subject: str, schema: Schema) -> str | None:
    async with registry_at(url) as registry:
        return await _found(registry, subject, schema)
