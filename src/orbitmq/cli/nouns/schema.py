"""Schemas of topics on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.schemas import SchemaComparison, SchemaTopic, TopicSchemaVersion
    from orbitmq.admin.session import Session

app = noun("schema", "Schemas of topics: what bodies contain, in versions that are checked for compatibility.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
SubjectArgument = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic's name; with --registry a subject, such as Orders-value."),
]
RegistryUrl = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        help="A schema registry with Confluent's interface instead of the name servers; its account is that of "
        "ORBITMQ_SCHEMA_REGISTRY_USER and ORBITMQ_SCHEMA_REGISTRY_SECRET or _SECRET_FILE.",
    ),
]
FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="The schema: .avsc, .json (JSON Schema), .proto, or protoc's descriptors."),
]
Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="json, avro or protobuf, if the file's name does not say so."),
]
MessageName = Annotated[
    str, typer.Option("--message", metavar="NAME", help="The message of Protobuf, if the file has several.")
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--compatibility",
        metavar="MODE",
        help="backward, forward, full or none; kept for later versions (default: the topic's, at first backward).",
    ),
]
Number = Annotated[int | None, typer.Option("--version", metavar="N", help="Only this version (default: all).")]


@reads(
    app,
    "list",
    "SchemaList",
    (
        "TOPIC=topic", "KIND=kind", "VERSIONS=versions", "LATEST=latest", "SCHEMA=schemaId",
        "COMPATIBILITY=compatibility", "REGISTERED=registeredAtMs",
    ),
)  # fmt: skip
async def list_(
    session: Session,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only topics that contain this text.")] = "",
    registry: RegistryUrl = None,
) -> Result[SchemaTopic]:
    """Topics that have schemas, with the latest version.

    \b
    Examples:
      orbitmq schema list
      orbitmq schema list --grep order -o json
      orbitmq schema list --registry http://127.0.0.1:8081
    """
    from orbitmq.admin import registry as at_registry
    from orbitmq.admin import schemas

    if registry is not None:
        return await at_registry.listed(session, registry, containing)
    return await schemas.listed(session, containing)


@reads(
    app,
    "show",
    "SchemaVersionList",
    (
        "VERSION=version", "SCHEMA=schemaId", "KIND=kind", "+MESSAGE=message", "REGISTERED=registeredAtMs",
        "TEXT=text",
    ),
)  # fmt: skip
async def show(
    session: Session, topic: SubjectArgument, version: Number = None, registry: RegistryUrl = None
) -> Result[TopicSchemaVersion]:
    """The versions of a topic's schemas.

    \b
    Examples:
      orbitmq schema show Orders
      orbitmq schema show Orders --version 2 -o template='$text'
      orbitmq schema show Orders-value --registry http://127.0.0.1:8081
    """
    from orbitmq.admin import registry as at_registry
    from orbitmq.admin import schemas

    if registry is not None:
        return await at_registry.versions(registry, topic, version)
    return await schemas.versions(session, topic, version)


@reads(
    app,
    "check",
    "SchemaCheck",
    ("VERSION=version", "COMPATIBLE=compatible", "REASONS=reasons"),
)
async def check(
    session: Session,
    topic: SubjectArgument,
    file: FileArgument,
    kind: Kind = None,
    message: MessageName = "",
    compatibility: Mode = None,
    registry: RegistryUrl = None,
) -> Result[SchemaComparison]:
    """Whether a schema may be the next version; exit code 7 if not. Nothing is registered.

    \b
    Examples:
      orbitmq schema check Orders order.avsc
      orbitmq schema check Orders order.proto --message Order --compatibility full
      orbitmq schema check Orders-value o.avsc --registry http://kafka:8081
    """
    from orbitmq.admin import registry as at_registry
    from orbitmq.admin import schemas

    schema = schemas.schema_of_file(file, schemas.kind_of(kind), message)
    if registry is not None:
        schemas.refuse_compatibility(compatibility)
        return await at_registry.compared(registry, topic, schema)
    return await schemas.compared(session, topic, schema, schemas.compatibility_of(compatibility))


@changes(app, "register")
async def register(
    session: Session,
    topic: SubjectArgument,
    file: FileArgument,
    kind: Kind = None,
    message: MessageName = "",
    compatibility: Mode = None,
    registry: RegistryUrl = None,
) -> Plan:
    """Make a schema the next version of a topic's. Exit code 7 if consumers could not read earlier bodies with it.

    \b
    Examples:
      orbitmq schema register Orders order.avsc
      orbitmq schema register Orders order.json --compatibility full
      orbitmq schema register Orders-value o.avsc --registry http://kafka:8081
    """
    from orbitmq.admin import registry as at_registry
    from orbitmq.admin import schemas
    from orbitmq.runtime.clock import SystemClock

    schema = schemas.schema_of_file(file, schemas.kind_of(kind), message)
    if registry is not None:
        schemas.refuse_compatibility(compatibility)
        return await at_registry.plan_register(registry, topic, schema)
    mode = schemas.compatibility_of(compatibility)
    return await schemas.plan_register(session, topic, schema, mode, SystemClock())


@changes(app, "remove")
async def remove(
    session: Session,
    topic: TopicArgument,
    version: Number = None,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="Only what is kept for the topic and cannot be read.")
    ] = False,
) -> Plan:
    """Remove versions of a topic's schemas. Bodies of Avro that were written with them cannot be read any more.

    \b
    Examples:
      orbitmq schema remove Orders --version 1
      orbitmq schema remove Orders --unreadable
      orbitmq schema remove Orders --dry-run
    """
    from orbitmq.admin import schemas

    return await schemas.plan_remove(session, topic, version, unreadable=unreadable)
