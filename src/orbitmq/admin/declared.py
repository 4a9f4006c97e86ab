"""A cluster's topics, groups and accounts as a document in a file. Pure: reads and writes text.

    apiVersion: orbitmq/v1
    kind: ClusterConfig
    topics:
    - {name: Orders, readQueues: 8, writeQueues: 8, perm: RW}
    - {name: Audit, readQueues: 4, writeQueues: 4, perm: RW, brokers: [broker-a]}
    groups:
    - {name: billing, retryMaxTimes: 5}
    accounts:
    - {accessKey: order-service, secret: {env: ORDER_SECRET}, topicPerms: ["Orders=PUB|SUB"]}

A setting that an entry leaves out keeps its value, or gets the default when the entry is new. A missing section is not
managed by the document; an empty section says that there are no entries. Secrets appear as references only and are
never written.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from orbitmq.errors import ConfigurationError

API_VERSION = "orbitmq/v1"
KIND = "ClusterConfig"
DOCUMENT_BYTES_MAX = 16 << 20
"""A hundred thousand topics; more than that is no file of this kind."""


class TopicEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A topic, at every master or at some."""

    name: str
    read_queues: int | None = None
    write_queues: int | None = None
    perm: str | None = None
    """`RW`, `R`, `W`."""
    unit: bool | None = None
    unit_subscribed: bool | None = None
    order: str | None = None
    """Its order setting, `broker-a:4;broker-b:4`."""
    message_type: str | None = None
    """`NORMAL`, `FIFO`, `DELAY`, `TRANSACTION`, `MIXED`."""
    brokers: list[str] = []


class GroupEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A consumer group's rules, at every master or at some."""

    name: str
    consume_enable: bool | None = None
    consume_from_min_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    retry_queue_nums: int | None = None
    retry_max_times: int | None = None
    broker_id: int | None = None
    which_broker_when_consume_slowly: int | None = None
    notify_consumer_ids_changed_enable: bool | None = None
    consume_message_orderly: bool | None = None
    brokers: list[str] = []

    def rules(self) -> dict[str, Any]:
        """Those that are given."""
        given = msgspec.structs.asdict(self)
        return {name: value for name, value in given.items() if value is not None and name not in ("name", "brokers")}


class SecretReference(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a secret is kept."""

    env: str | None = None
    file: str | None = None


class AccountEntry(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """An account, at every broker."""

    access_key: str
    secret: SecretReference | None = None
    """Not given: it stays as it is."""
    admin: bool | None = None
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None


class Document(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The whole file; a missing section is None."""

    topics: list[TopicEntry] | None = None
    groups: list[GroupEntry] | None = None
    accounts: list[AccountEntry] | None = None
    api_version: str = API_VERSION
    kind: str = KIND


def parse(text: str) -> Document:
    """ConfigurationError says where the text is no such document."""
    import yaml

    if len(text) > DOCUMENT_BYTES_MAX:
        raise ConfigurationError(f"the document is larger than {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = msgspec.convert(yaml.safe_load(text) or {}, Document)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"no YAML: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigurationError(str(error)) from error
    if (document.api_version, document.kind) != (API_VERSION, KIND):
        raise ConfigurationError(f"{document.api_version} {document.kind} is not {API_VERSION} {KIND}")
    _check_once("topic", [(one.name, one.brokers) for one in document.topics or ()])
    _check_once("group", [(one.name, one.brokers) for one in document.groups or ()])
    _check_once("account", [(one.access_key, []) for one in document.accounts or ()])
    return document


def _check_once(what: str, entries: list[tuple[str, list[str]]]) -> None:
    """Two entries of a name are allowed if they are for different brokers."""
    seen: dict[str, set[str]] = {}
    for name, brokers in entries:
        places = set(brokers) or {""}
        before = seen.setdefault(name, set())
        if before & places or (before and "" in before | places):
            raise ConfigurationError(f"{what} {name} is declared twice")
        before |= places


def dump(document: Document) -> str:
    """The same text for the same cluster: sections, names and keys in a fixed order."""
    import yaml

    document_map: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    document_map |= {
        name: section for name, section in msgspec.to_builtins(document).items() if name not in document_map
    }
    return str(yaml.safe_dump(document_map, sort_keys=False, allow_unicode=True, width=10_000))
