"""Checks for monitoring systems on the command line, as Nagios plugins answer."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.verbs import ClusterName, ContextName, Mapped, NameServers, Timeout, noun

app = noun("check", "One question for a monitoring system: exit code 0 well, 1 warning, 2 critical, 3 unknown.")

Warning_ = Annotated[float | None, typer.Option("-w", "--warning", metavar="N", help="From this value on.")]
Critical = Annotated[float | None, typer.Option("-c", "--critical", metavar="N", help="From this value on.")]
Form = Annotated[str, typer.Option("--format", metavar="FORMAT", help="nagios, json or prometheus.")]
Broker = Annotated[
    str | None, typer.Option("--broker", "-b", metavar="BROKER", help="Name, name:id or host:port; else all of them.")
]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group.")]


@app.command("connection")
def connection(
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """Whether every name server answers, and how fast. Limits in ms: 500, 2000.

    \b
    Examples:
      orbitmq check connection
      orbitmq check connection -w 50 -c 200 -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("connection", checks.connection, Limits(warning, critical), form, reach)


@app.command("broker")
def broker(
    name: Broker = None,
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """Whether brokers answer and take messages, and how long sends wait there. Limits in ms: 200, 1000.

    \b
    Examples:
      orbitmq check broker
      orbitmq check broker --broker broker-a --format json
    """
    from functools import partial

    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("broker", partial(checks.broker, name=name), Limits(warning, critical), form, reach)


@app.command("disk")
def disk(
    name: Broker = None,
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """How full the disks of brokers are. Limits in percent: 75, where old messages go early, and 85.

    \b
    Examples:
      orbitmq check disk
      orbitmq check disk -w 60 -c 70
    """
    from functools import partial

    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("disk", partial(checks.disk, name=name), Limits(warning, critical), form, reach)


@app.command("lag")
def lag(
    group: Group,
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """How many messages a group is behind. Limits in messages: 10000, 100000.

    A broker that does not answer makes it unknown, unless what the others tell is critical already.

    \b
    Examples:
      orbitmq check lag billing
      orbitmq check lag billing -w 100 -c 5000
    """
    from functools import partial

    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("lag", partial(checks.lag, group=group), Limits(warning, critical), form, reach)


@app.command("dlq")
def dlq(
    group: Group,
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """How many dead letters of a group are kept. Limits in messages: 1, 100.

    \b
    Examples:
      orbitmq check dlq billing
      orbitmq check dlq billing -w 10 -c 1000 --format prometheus
    """
    from functools import partial

    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("dlq", partial(checks.dlq, group=group), Limits(warning, critical), form, reach)


@app.command("replica")
def replica(
    warning: Warning_ = None,
    critical: Critical = None,
    form: Form = "nagios",
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """How far slaves are behind their masters. Limits in bytes: 16 and 256 MiB; no master at all is critical.

    \b
    Examples:
      orbitmq check replica
      orbitmq check replica -w 1048576 -c 67108864
    """
    from orbitmq.admin import checks
    from orbitmq.cli.checking import Limits, Reach, run

    reach = Reach(name_servers or (), context_name, cluster, mapped or (), timeout * 1000)
    run("replica", checks.replica, Limits(warning, critical), form, reach)
