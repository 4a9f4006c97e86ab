"""The generated pages of the reference, from what the option classes, request tables and commands declare.

A test compares them with the committed files. State no fact here that the code does not declare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

from typer import Typer
from typer.testing import CliRunner

from orbitmq.broker.options import BrokerOptions
from orbitmq.cli.foreign_keys import FIXED, WITHOUT_EFFECT
from orbitmq.cli.lazy_commands import NOUNS
from orbitmq.cli.main import app
from orbitmq.client.settings import (
    ClientSettings,
    LitePullSettings,
    ProducerSettings,
    PullSettings,
    PushSettings,
    SimpleSettings,
    TransactionSettings,
    options_of,
    variable_of,
)
from orbitmq.gateway.openapi import document
from orbitmq.metrics.options import MetricsOptions
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.tls_options import TlsOptions
from orbitmq.proxy.options import ProxyOptions
from orbitmq.runtime.options import Option, Options, as_text
from orbitmq.spark.lake.options import LakeReadOptions
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.stores.options import ScanOptions
from orbitmq.store.options import StoreOptions
from orbitmq.wire.request import Peer, Slave
from orbitmq.wire.requests import RequestCode, served_by
from reference.api import MODULES, api_page
from reference.metrics import metrics_page
from reference.pipeline import pipeline_page
from reference.schemas import KINDS, item_of, schema

_OPTIONS_HEAD = """\
# Options

Written by `make reference` from the option tables in the code.

The keys are those of a Java properties file, given with `-c` as for Apache RocketMQ. With an invalid value a daemon
does not start, and reports the key, the value and the allowed values. `-p` prints the effective configuration.
"""
_FOREIGN_HEAD = """
## Keys of Apache RocketMQ without effect

A configuration file written for Apache RocketMQ is accepted unchanged. These keys have no effect, and each gives a
warning; any other key is reported as unknown.
"""
_FIXED_HEAD = """
## Keys with one value

Ignoring these would silently break a guarantee, so any other value is refused.
"""
_COMMANDS_HEAD = """\
# Commands

Written by `make reference` from the command table in the code.

| exit code | meaning |
|---|---|
| 0 | done; for a daemon: stopped cleanly by SIGTERM or Ctrl-C |
| 1 | failure |
| 2 | wrong usage or configuration |
| 3 | not found: topic, group, broker, message |
| 4 | no permission: of an account, or of the operating system (unwritable directory, privileged port) |
| 5 | a node did not respond: the result is missing or partial; `errors` names the node |
| 6 | no response in time |
| 7 | conflict: it already exists, a group is online, a port is in use, a directory is locked |
| 8 | the check ran, and its result is negative |
| 9 | not confirmed, nothing was changed |
| 10 | no change was necessary, with `--fail-if-unchanged` |
| 130 | interrupted; a daemon: by a second Ctrl-C, without a clean stop |

The help of the `store` commands lists their exit codes.
"""
_CLIENT_HEAD = """\
# Client settings

Written by `make reference` from the tables in the code.

These are keyword arguments of the constructors; the second column is the equivalent property of Apache RocketMQ's
client. An upper-case name next to a setting is an environment variable that is used if you do not pass the argument.
"""
_SPARK_HEAD = """\
# Options of the Spark data source

Written by `make reference` from the option table in the code.

`spark.read.format("orbitmq").option(key, value)`; names are not case-sensitive.
"""
_STORES_HEAD = """\
# Options of the Spark data source for store directories

Written by `make reference` from the option table in the code.

`spark.read.format("orbitmq-store").option(key, value)`; names are not case-sensitive. [The guide](../spark-stores.md)
explains them.
"""
_LAKE_HEAD = """\
# Options of the Spark data source for lakes

Written by `make reference` from the option table in the code.

`spark.read.format("orbitmq-lake").option(key, value)`; names are not case-sensitive. [The lake](../lake.md#reading-it)
explains them.
"""
_BODY_COLUMNS = """
With `bodyFormat` there are also `value`, a struct of the fields of the bodies, and `_rescued`, a string with what does
not fit; without the option `columns` they replace `body`. See [bodies as columns](../spark.md#bodies-as-columns).
"""
_ARCHIVED_COLUMNS = """
In a lake with [bodies as columns](../lake.md#bodies-as-columns), or with `bodyFormat`, there are also `value`, a struct
of the fields of the bodies, and `_rescued`, a string with what does not fit; without the option `columns` they replace
`body`.
"""
_SINK_HEAD = """
## Options of writes

`df.write.format("orbitmq").mode("append").option(key, value)`, and the same with `writeStream`.
"""
_ACCESS_HEAD = """\
# What each request to a broker needs

Written by `make reference` from the table in the code; [security](../security.md) describes access control.

These rules hold with `aclEnable=true`. A request without credentials, of an unknown account, or with a signature that
does not match the account's secret is refused for every code, unless it comes from an address of a white list.
A refused request gets a response with code 1; a oneway request is dropped. An administrator without permissions of its
own has all permissions.

The third column is what an account with a valid signature needs, the fourth the result for an account without any
permission. Where RocketMQ 4.9.7 requires something else, the fifth column says what, and the last one why orbitmq
differs.
"""
_REQUESTS_HEAD = """\
# Requests

Written by `make reference` from the table in the code.

The request codes of the remoting protocol that orbitmq serves, and which nodes serve them. Any other code gets
the response `REQUEST_CODE_NOT_SUPPORTED` (3); names and numbers are those of Apache RocketMQ.
[What each request to a broker needs](access.md) with access control is a separate table.
"""
_REQUESTS_FOOT = """
## Slaves and bodies

A slave serves all other requests, as its master does. The body of a request without a declared body is ignored, and
refused beyond 1 MiB.
"""
_ACCESS_FOOT = """
## Requests that brokers do not handle

For these, and for unknown codes, every account gets the response REQUEST_CODE_NOT_SUPPORTED (3), as with RocketMQ. A
request that a broker handles without a line in the table above needs an administrator.

"""
_SCHEMAS_HEAD = """\
# JSON schemas

Written by `make reference` from the table in the code.

`-o json` prints one object per run, `-o jsonl` one line per item. `kind` in the object names its schema (JSON Schema
2020-12).
"""
_HELP_WIDTH = 100


def options_page() -> str:
    """Every key of the configuration files."""
    return "".join(
        (
            _OPTIONS_HEAD,
            "\n## Broker\n",
            _option_table(BrokerOptions),
            "\n## Store of the broker\n",
            _option_table(StoreOptions),
            "\n## Name server\n",
            _option_table(NamesrvOptions),
            "\n## Proxy\n",
            _option_table(ProxyOptions),
            "\n## Connections of all three\n",
            _option_table(ConnectionOptions),
            "\n## TLS of all three\n",
            _option_table(TlsOptions),
            "\n## Metrics of all three\n",
            _option_table(MetricsOptions),
            _FOREIGN_HEAD,
            _table(("key", "why"), ((f"`{key}`", why) for key, why in sorted(WITHOUT_EFFECT.items()))),
            _FIXED_HEAD,
            _table(
                ("key", "only value", "why"), ((f"`{key}`", f"`{only}`", why) for key, (only, why) in FIXED.items())
            ),
        )
    )


def commands_page() -> str:
    """The help of every command."""
    groups = [group.typer_instance for group in app.registered_groups if group.typer_instance]
    nouns = [import_module(f"orbitmq.cli.nouns.{name}").app for name in NOUNS]
    names = _verbs(app, [])
    for group in (*groups, *nouns):
        name = [str(group.info.name)]
        names += [name] if group.registered_callback else []
        names += _verbs(group, name)
    return "".join((_COMMANDS_HEAD, *map(_help, names)))


def _verbs(group: Typer, before: list[str]) -> list[list[str]]:
    commands = [command for command in group.registered_commands if command.callback]
    names = [command.name or str(command.callback.__name__) for command in commands if command.callback]
    if names == before:  # a noun that is its only verb
        return [before]
    found = [[*before, name] for name in names]
    inner = [(str(one.name), one.typer_instance) for one in group.registered_groups if one.name and one.typer_instance]
    return found + [verb for name, part in inner for verb in _verbs(part, [*before, name])]


def client_page() -> str:
    """The keyword arguments of every client class."""
    titles = {
        "Producer": ProducerSettings,
        "TransactionProducer": TransactionSettings,
        "PushConsumer": PushSettings,
        "LitePullConsumer": LitePullSettings,
        "PullConsumer and PullSchedule": PullSettings,
        "SimpleConsumer": SimpleSettings,
    }
    return _CLIENT_HEAD + "".join(f"\n## {title}\n{_setting_table(kind)}" for title, kind in titles.items())


def spark_page() -> str:
    """The options and columns of reads."""
    from orbitmq.spark.columns import DEFAULT_COLUMNS  # loads pyspark, which only this page needs
    from orbitmq.spark.forms import TOPIC_COLUMNS

    rows = [
        (f"`{name}`", column.type.simpleString(), "yes" if name in DEFAULT_COLUMNS else "")
        for name, column in TOPIC_COLUMNS.items()
    ]
    columns = _table(("column", "type", "without option `columns`"), rows)
    return f"{_SPARK_HEAD}{_option_table(ReadOptions)}\n## Columns\n{columns}{_BODY_COLUMNS}{_spark_writes()}"


def _spark_writes() -> str:
    from orbitmq.spark.sink_columns import SINK_COLUMNS

    rows = [
        (f"`{name}`", f"`{column.alias}`" if column.alias else "", ", ".join(t.typeName() for t in column.types), text)
        for name, column in SINK_COLUMNS.items()
        for text in [column.text]
    ]
    columns = _table(("column", "alias", "type", "description"), rows)
    return f"{_SINK_HEAD}{_option_table(WriteOptions)}\n## Columns of writes\n{columns}"


def spark_stores_page() -> str:
    """The options and columns of reads of a store directory."""
    from orbitmq.spark.columns import DEFAULT_COLUMNS
    from orbitmq.spark.stores.columns import INDEX_COLUMNS, LOG_COLUMNS, QUEUE_COLUMNS

    messages = {name: (column.type, "yes" if name in DEFAULT_COLUMNS else "") for name, column in LOG_COLUMNS.items()}
    kinds = {
        "Columns of messages": messages,
        "Columns with scan=consumequeue": {name: (kind, "yes") for name, kind in QUEUE_COLUMNS.items()},
        "Columns with scan=index": {name: (kind, "yes") for name, kind in INDEX_COLUMNS.items()},
    }
    tables = []
    for title, columns in kinds.items():
        rows = ((f"`{name}`", kind.simpleString(), default) for name, (kind, default) in columns.items())
        tables.append(f"\n## {title}\n{_table(('column', 'type', 'without option `columns`'), rows)}")
    tables.insert(1, _BODY_COLUMNS)
    return f"{_STORES_HEAD}{_option_table(ScanOptions)}{''.join(tables)}"


def spark_lake_page() -> str:
    """The options and columns of reads of a lake."""
    from orbitmq.spark.columns import COLUMNS, DEFAULT_COLUMNS
    from orbitmq.spark.lake.source import NOT_ARCHIVED

    rows = [
        (f"`{name}`", column.type.simpleString(), "yes" if name in DEFAULT_COLUMNS else "")
        for name, column in COLUMNS.items()
        if name not in NOT_ARCHIVED
    ]
    columns = _table(("column", "type", "without option `columns`"), rows)
    return f"{_LAKE_HEAD}{_option_table(LakeReadOptions)}\n## Columns\n{columns}{_ARCHIVED_COLUMNS}"


def access_page() -> str:
    """The permissions that requests to a broker need."""
    head = ("code", "name", "needed", "without permission", "RocketMQ 4.9.7 requires", "why")
    known = served_by(Peer.BROKER)
    rows = map(_access_row, known)
    rest = ", ".join(f"`{request.name}` ({request})" for request in sorted(set(RequestCode).difference(known)))
    return f"{_ACCESS_HEAD}{_table(head, rows)}{_ACCESS_FOOT}{rest}.\n"


def _access_row(request: RequestCode) -> tuple[str, ...]:
    access = request.access
    outcome = "refused" if access.is_admin or access.needs else "handled"
    return str(request), f"`{request.name}`", access.text, outcome, access.original, access.reason


def requests_page() -> str:
    """The requests that each kind of node serves."""
    head = ("code", "name", "description")
    parts = [_REQUESTS_HEAD]
    for title, peer in (("Name server", Peer.NAME_SERVER), ("Broker", Peer.BROKER), ("Client", Peer.CLIENT)):
        rows = ((str(request), f"`{request.name}`", request.text) for request in served_by(peer))
        parts.append(f"\n## {title}\n{_table(head, rows)}")
    return "".join(parts) + _requests_of_brokers()


def _requests_of_brokers() -> str:
    head = ("code", "name", "a slave", "maximum size of the body, bytes")
    rows = (
        (str(one), f"`{one.name}`", one.slave.value, "a frame" if one.body_max is None else str(one.body_max))
        for one in served_by(Peer.BROKER)
        if one.has_body or one.slave is not Slave.SERVES
    )
    return f"{_REQUESTS_FOOT}{_table(head, rows)}"


def schemas_page() -> str:
    """The kinds of JSON output, with links to their schemas."""
    rows = ((f"[`{kind}`](schemas/{kind}.json)", _first_line(item_of(kind))) for kind in sorted(KINDS))
    return f"{_SCHEMAS_HEAD}{_table(('kind', 'item'), rows)}"


def _first_line(kind: type) -> str:
    return " ".join(str(kind.__doc__).split("\n\n")[0].split())


def schema_page(kind: str) -> str:
    """The JSON Schema of the output of this kind."""
    return json.dumps(schema(kind, item_of(kind)), indent=2, ensure_ascii=False) + "\n"


def openapi_page() -> str:
    """The document of the gateway, as it serves it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "access.md": access_page,
    "requests.md": requests_page,
    "options.md": options_page,
    "commands.md": commands_page,
    "client.md": client_page,
    "spark.md": spark_page,
    "spark-stores.md": spark_stores_page,
    "spark-lake.md": spark_lake_page,
    "pipeline.md": pipeline_page,
    "metrics.md": metrics_page,
    "schemas.md": schemas_page,
    "openapi.json": openapi_page,
    **{page: partial(api_page, page) for page in MODULES},
    **{f"schemas/{kind}.json": partial(schema_page, kind) for kind in KINDS},
}


def _option_table(options: type[Options]) -> str:
    return _table(("key", "default", "allowed", "description"), (_option_row(o) for _, o in options.table().values()))


def _setting_table(kind: type[ClientSettings]) -> str:
    rows = ((_setting_name(name, declared), *_option_row(declared)) for name, declared in options_of(kind).items())
    return _table(("setting", "key", "default", "allowed", "description"), rows)


def _setting_name(name: str, declared: Option) -> str:
    return f"`{name}` or `{variable_of(name)}`" if declared.from_environment else f"`{name}`"


def _option_row(declared: Option) -> tuple[str, ...]:
    default = as_text(declared.default)
    allowed = f"{declared.allowed()} ({declared.unit})" if declared.unit else declared.allowed()
    text = f"{declared.text} Can be changed while the daemon runs." if declared.changeable else declared.text
    return f"`{declared.key}`", f"`{default}`" if default else "", allowed, text


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n" + "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def _help(names: list[str]) -> str:
    printed = CliRunner().invoke(app, [*names, "--help"], prog_name="orbitmq", terminal_width=_HELP_WIDTH)
    return f"\n## orbitmq {' '.join(names)}\n\n```\n{printed.output.strip()}\n```\n"
