"""Schemas at a registry with Confluent's REST interface, which Karapace and Apicurio have as well.

A registry keeps versions under subjects, and each schema under an id that bodies begin with. It checks compatibility by
itself. Knows no topic and no client.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from orbitmq.errors import ConfigurationError, OrbitMQError, SchemaIllegal, SchemaIncompatible, SchemasAway
from orbitmq.operations.schemas import TopicSchemas
from orbitmq.schemas import avro, protobuf
from orbitmq.schemas.compatibility import check_valid
from orbitmq.schemas.model import VERSIONS_MAX, Compatibility, Schema, SchemaKind, SchemaVersion, json_text

T = TypeVar("T")

TYPES: Final = {"AVRO": SchemaKind.AVRO, "JSON": SchemaKind.JSON, "PROTOBUF": SchemaKind.PROTOBUF}
MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
RESPONSE_BYTES_MAX: Final = 4 << 20  # a schema has at most 1 MiB at Confluent's, and JSON escapes some of it
REFERENCES_MAX: Final = 100  # schemas that one schema is made of; more is a circle
TEXT_MAX: Final = 300  # characters of a response that an error shows
MESSAGE_MAX: Final = 4000  # characters of a refusal, which may name several fields
IN_FLIGHT_MAX: Final = 16  # requests at a time; a batch of messages may name a schema each
UNKNOWN_AGAIN_S: Final = 1.0  # a replica of the registry may not have yet what another one has just registered
MISSING_KEPT_S: Final = 60.0  # an id without a schema is not asked for again so soon
MISSING_MAX: Final = 1000  # of these ids; bodies of any sender may name any id
TRANSITIVE: Final = "_TRANSITIVE"
OK, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, UNPROCESSABLE = 200, 401, 403, 404, 409, 422
NO_SUBJECT, NO_VERSION, NO_SCHEMA, NO_LEVEL = 40401, 40402, 40403, 40408
"""`error_code` of responses with 404."""


@dataclass(frozen=True)
class RegistryOptions:
    """How a registry is reached. ConfigurationError for a URL that is none."""

    urls: Sequence[str]
    """The first one that responds is used."""
    user: str = ""
    """With `secret` as password; without it the secret is a bearer token."""
    secret: str = field(default="", repr=False)
    secret_file: str = ""
    """Read for each request, so that what replaces a secret there counts at once."""
    ca_file: str = ""
    """Certificates of authorities, PEM; empty means those of the machine."""
    timeout_s: float = 5.0
    """Of each request."""

    def __post_init__(self) -> None:
        for url in self.urls:
            if "@" in url:  # the URL is in errors and logs
                raise ConfigurationError(
                    "the URL of the schema registry has a user or a password; give schema_registry_user and "
                    "schema_registry_secret instead"
                )
            try:
                parts = urlsplit(url)
                parts.port  # noqa: B018 - ValueError for what is none
            except ValueError as error:
                raise ConfigurationError(f"the URL of the schema registry is none: {error}") from None
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
                raise ConfigurationError(f"{url!r} is no URL of a schema registry; use http(s)://host:port")
        if self.secret and self.secret_file:
            raise ConfigurationError("settings schema_registry_secret and schema_registry_secret_file: set one of them")


class Reference(Struct, frozen=True):
    """A schema that another one names."""

    subject: str
    version: int


class Kept(Struct, frozen=True, kw_only=True, rename="camel"):
    """A schema as a registry returns it."""

    schema: str
    schema_type: str | None = None
    """None is Avro."""
    references: list[Reference] | None = None

    @property
    def kind(self) -> SchemaKind:
        """Its language. SchemaIllegal for another than those three."""
        found = TYPES.get(self.schema_type or "AVRO")
        if found is None:
            raise SchemaIllegal(f"its type is {str(self.schema_type)[:TEXT_MAX]}, not one of {', '.join(TYPES)}")
        return found


class KeptVersion(Kept, frozen=True, kw_only=True, rename="camel"):
    """A version of a subject."""

    id: int
    version: int


class _Level(Struct, rename="camel"):
    compatibility_level: str


class _Comparison(Struct):
    is_compatible: bool
    messages: list[str] | None = None


@dataclass(frozen=True)
class Check:
    """What a registry says of a schema and one version."""

    version: int
    compatible: bool
    reasons: list[str]


class Registry:
    """A registry. Each method raises SchemasAway if it does not respond, does not accept the account, or responds with
    what no registry sends. Belongs to the event loop that uses it first; `close` ends its connections.
    """

    def __init__(self, options: RegistryOptions) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise ConfigurationError("a schema registry needs httpx2: pip install 'orbitmq[registry]'") from error
        self._options = options
        self._urls = [url.rstrip("/") for url in options.urls]
        self._errors = (httpx2.HTTPError, TimeoutError)
        tls = any(url.startswith("https:") for url in self._urls)
        # Without TLS nothing is verified, and no certificates are read.
        self._http = httpx2.AsyncClient(verify=tls and _tls(options.ca_file), trust_env=False, timeout=None)
        self._places = asyncio.Semaphore(IN_FLIGHT_MAX)
        self._missing: dict[int, tuple[float, str]] = {}
        """Id without a schema that can be used -> when it may be asked for again, by the loop's clock, and why."""

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def by_ids(self, ids: Iterable[int]) -> dict[int, Schema | str]:
        """What `by_id` returns, for each of these ids, with one pause for all that are unknown."""
        try:
            async with asyncio.TaskGroup() as group:
                found = {one: group.create_task(self.by_id(one)) for one in ids}
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return {one: task.result() for one, task in found.items()}

    async def by_id(self, registry_id: int) -> Schema | str:
        """The schema that bodies name by this id, or why there is none that can be used. The text of one of Protobuf is
        as the registry has it.
        """
        loop = asyncio.get_running_loop()
        ends_s, reason = self._missing.get(registry_id, (0.0, ""))
        if loop.time() < ends_s:
            return reason
        path = f"schemas/ids/{registry_id}"
        found = await self._found("GET", path, Kept, NO_SCHEMA)
        if found is None:
            await asyncio.sleep(UNKNOWN_AGAIN_S)
            found = await self._found("GET", path, Kept, NO_SCHEMA)
        if found is None:
            return self._without(registry_id, "which the registry does not have")
        try:
            if found.kind is SchemaKind.PROTOBUF:
                return Schema(found.kind, found.schema)
            schema = await self._schema(found)
            check_valid(schema)
        except SchemaIllegal as error:
            return self._without(registry_id, f"which cannot be used: {error}")
        return schema

    def _without(self, registry_id: int, reason: str) -> str:
        if len(self._missing) >= MISSING_MAX:
            del self._missing[next(iter(self._missing))]
        self._missing[registry_id] = asyncio.get_running_loop().time() + MISSING_KEPT_S, reason
        return reason

    async def find(self, subject: str, schema: Schema) -> SchemaVersion | None:
        """The version of the subject that has this schema. SchemaIllegal for an invalid one."""
        path = f"subjects/{_part(subject)}"
        found = await self._found("POST", path, KeptVersion, NO_SUBJECT, NO_SCHEMA, sent=schema)
        return None if found is None else SchemaVersion(found.version, schema, 0, found.id)

    async def register(self, subject: str, schema: Schema) -> SchemaVersion:
        """Make `schema` the next version of the subject; nothing changes if it is one already. SchemaIncompatible if
        the registry refuses it for that, SchemaIllegal for an invalid one.
        """
        check_valid(schema)
        found = await self.find(subject, schema)
        if found is not None:
            return found
        await self._ask("POST", f"subjects/{_part(subject)}/versions", dict, sent=schema)
        found = await self.find(subject, schema)
        if found is None:
            raise SchemasAway(f"the registry has taken a schema for subject {subject} and does not have it; try again")
        return found

    async def checked(self, subject: str, schema: Schema) -> list[Check]:
        """The comparison with the latest version or, where the registry compares with all, with each. Empty if there
        is none. SchemaIllegal for an invalid schema.
        """
        check_valid(schema)
        numbers = await self.numbers(subject)
        if not (await self.level(subject)).endswith(TRANSITIVE):
            numbers = numbers[-1:]
        results = []
        for number in numbers:
            path = f"compatibility/subjects/{_part(subject)}/versions/{number}?verbose=true"
            found = await self._ask("POST", path, _Comparison, sent=schema)
            reasons = [one[:TEXT_MAX] for one in found.messages or ()]
            results.append(Check(number, found.is_compatible, reasons))
        return results

    async def level(self, subject: str) -> str:
        """How versions of the subject must be compatible, in the registry's words, such as `BACKWARD_TRANSITIVE`."""
        found = await self._found("GET", f"config/{_part(subject)}", _Level, NO_SUBJECT, NO_LEVEL)
        if found is None:
            found = await self._ask("GET", "config", _Level)
        return found.compatibility_level

    async def subjects(self) -> list[str]:
        """The names of all subjects."""
        return await self._ask("GET", "subjects", list[str])

    async def numbers(self, subject: str) -> list[int]:
        """The numbers of the subject's versions; none if it has none."""
        return sorted(await self._found("GET", f"subjects/{_part(subject)}/versions", list[int], NO_SUBJECT) or ())

    async def version(self, subject: str, number: int | str) -> KeptVersion:
        """A version by its number, or `latest`. SchemaIllegal if it is gone."""
        path = f"subjects/{_part(subject)}/versions/{number}"
        found = await self._found("GET", path, KeptVersion, NO_SUBJECT, NO_VERSION)
        if found is None:
            raise SchemaIllegal(f"the registry has no version {number} of subject {subject}")
        return found

    async def versions(self, subject: str) -> list[KeptVersion]:
        """The newest versions of the subject, 100 at most; none if it has none."""
        return [await self.version(subject, number) for number in (await self.numbers(subject))[-VERSIONS_MAX:]]

    async def of_subject(self, subject: str) -> TopicSchemas:
        """The newest versions of the subject, 100 at most, and what the next one must be compatible with."""
        found: list[SchemaVersion] = []
        unreadable: dict[str, str] = {}
        for one in await self.versions(subject):
            try:
                found.append(SchemaVersion(one.version, await self._version_schema(subject, one), 0, one.id))
            except SchemaIllegal as error:
                unreadable[str(one.version)] = str(error)
        return TopicSchemas(mode_of(await self.level(subject)), found, unreadable)

    # ------------------------------------------------------------------------------------------------------- schemas

    async def _version_schema(self, subject: str, one: KeptVersion) -> Schema:
        if one.kind is not SchemaKind.PROTOBUF:
            return await self._schema(one)
        path = f"subjects/{_part(subject)}/versions/{one.version}?format=serialized"
        return protobuf.schema_of_text((await self._ask("GET", path, Kept)).schema)

    async def _schema(self, found: Kept) -> Schema:
        """A schema of Avro or JSON. SchemaIllegal for one that is not valid."""
        text = found.schema
        if found.kind is SchemaKind.AVRO and found.references:
            text = avro.joined_text(text, await self._referred(found.references, {}))
        try:
            return Schema(found.kind, json_text(json.loads(text)))
        except (ValueError, RecursionError) as error:
            raise SchemaIllegal(f"it is no JSON: {error}") from error

    async def _referred(self, references: Sequence[Reference], known: dict[Reference, str]) -> list[str]:
        """The texts of schemas that another one names, each after those that it names itself."""
        for one in references:
            if one in known:
                continue
            if len(known) >= REFERENCES_MAX:
                raise SchemaIllegal(f"it consists of more than {REFERENCES_MAX} schemas")
            known[one] = ""  # one that names itself ends here
            found = await self.version(one.subject, one.version)
            await self._referred(found.references or (), known)
            del known[one]
            known[one] = found.schema
        return [text for text in known.values() if text]

    # ---------------------------------------------------------------------------------------------------------- HTTP

    async def _ask(self, method: str, path: str, kind: type[T], *, sent: Schema | None = None) -> T:
        found = await self._found(method, path, kind, sent=sent)
        assert found is not None, "nothing may be missing"
        return found

    async def _found(
        self, method: str, path: str, kind: type[T], *missing: int, sent: Schema | None = None
    ) -> T | None:
        """The response of the first URL that sends one; None for a 404 with one of the codes `missing`. A schema that
        is sent may be refused: SchemaIncompatible, SchemaIllegal.
        """
        failures: list[str] = []
        for url in list(self._urls):
            try:
                async with self._places, asyncio.timeout(self._options.timeout_s):
                    status, content = await self._response(method, f"{url}/{path}", sent)
            except self._errors as error:
                failures.append(f"{url}: {type(error).__name__} {error}".rstrip())
                continue
            if status in (UNAUTHORIZED, FORBIDDEN):
                raise SchemasAway(
                    f"the schema registry {url} does not accept the account ({status}); check schema_registry_user and "
                    "schema_registry_secret, and what the account may do"
                )
            try:
                if status == OK:
                    found = msgspec.json.decode(content, type=kind)
                elif status not in (NOT_FOUND, CONFLICT, UNPROCESSABLE):
                    raise msgspec.DecodeError(f"status {status}")
                else:
                    refusal = msgspec.json.decode(content, type=_Refusal)
            except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
                failures.append(f"{url}/{path}: no response of a registry: {error}: {content[:TEXT_MAX]!r}")
                continue
            self._urls.remove(url)
            self._urls.insert(0, url)
            if status == OK:
                return found
            if status == NOT_FOUND and refusal.error_code in missing:
                return None
            raise refusal.error(status, f"{method} {url}/{path}", of_schema=sent is not None)
        raise SchemasAway(f"no schema registry responds: {'; '.join(failures)}")

    async def _response(self, method: str, url: str, sent: Schema | None) -> tuple[int, bytes]:
        headers = {
            "Accept": f"{MEDIA_TYPE}, application/json",
            "Accept-Encoding": "identity",
            "Content-Type": MEDIA_TYPE,
        }
        user, secret = self._options.user, self._secret()
        if secret and not user:
            if not (secret.isascii() and secret.isprintable()):  # else the error of the header would show it
                raise ConfigurationError("the token of the schema registry has characters that no header takes")
            headers["Authorization"] = f"Bearer {secret}"
        content = None if sent is None else msgspec.json.encode(_sent(sent))
        request = self._http.build_request(method, url, content=content, headers=headers)
        response = await self._http.send(request, auth=(user, secret) if user else None, stream=True)
        try:
            received = bytearray()
            async for piece in response.aiter_raw():
                received += piece
                if len(received) > RESPONSE_BYTES_MAX:
                    return 0, b"more than %d bytes" % RESPONSE_BYTES_MAX
            return response.status_code, bytes(received)
        finally:
            await response.aclose()

    def _secret(self) -> str:
        if not self._options.secret_file:
            return self._options.secret
        try:
            return Path(self._options.secret_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"setting schema_registry_secret_file: {error}") from error


class _Refusal(Struct):
    error_code: int
    message: str = ""

    def error(self, status: int, request: str, *, of_schema: bool) -> OrbitMQError:
        text = self.message[:MESSAGE_MAX]
        if of_schema and status == CONFLICT:
            return SchemaIncompatible(f"the schema registry refuses the schema: {text}")
        if of_schema and status == UNPROCESSABLE:
            return SchemaIllegal(f"the schema registry refuses the schema: {text}")
        return SchemasAway(f"the schema registry refuses {request}: {self.error_code} {text}; check the URL")


def mode_of(level: str) -> Compatibility:
    """A registry's level in the words of this package, which compares with every version."""
    name = level.removesuffix(TRANSITIVE).lower()
    return Compatibility(name) if name in set(Compatibility) else Compatibility.NONE


def subject_of(pattern: str, topic: str, schema: Schema | None) -> str:
    """The subject for a topic and a schema. In the pattern, `{topic}` stands for the topic's name, and `{record}` for
    the full name of the schema's record or message, or its title. ConfigurationError for a name that is missing.
    """
    if "{record}" not in pattern:
        return pattern.replace("{topic}", topic)
    if schema is None:
        raise ConfigurationError("setting schema_registry_subject: without a schema {record} has no name")
    name = _record(schema)
    if not name:
        raise ConfigurationError("setting schema_registry_subject: the schema has no name for {record}")
    return pattern.replace("{topic}", topic).replace("{record}", name)


def _record(schema: Schema) -> str:
    if schema.kind is SchemaKind.PROTOBUF:
        return schema.message
    found = json.loads(schema.text)
    if not isinstance(found, dict):
        return ""
    if schema.kind is SchemaKind.JSON:
        return str(found.get("title", ""))
    name, space = str(found.get("name", "")), str(found.get("namespace", ""))
    return f"{space}.{name}" if space and name and "." not in name else name


def _sent(schema: Schema) -> dict[str, str]:
    """A schema as a registry takes it."""
    if schema.kind is SchemaKind.PROTOBUF:
        return {"schemaType": "PROTOBUF", "schema": protobuf.file_text(schema)}
    return {"schemaType": schema.kind.upper(), "schema": schema.text}


def _part(name: str) -> str:
    return quote(name, safe="")


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(Path(ca_file).expanduser()) if ca_file else None)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigurationError(f"setting schema_registry_ca_file: {ca_file}: {error.strerror or error}") from error
