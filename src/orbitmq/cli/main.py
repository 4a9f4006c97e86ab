"""The command table of `orbitmq`: names, flags and help, nothing else.

`orbitmq --help` must print without delay, so nothing heavier than typer is imported here; each command imports its
implementation when it is called. Must not know what a daemon is made of.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.flags import LogLevel, PrintConfig, Settings
from orbitmq.cli.lazy_commands import Nouns
from orbitmq.runtime.form import described
from orbitmq.runtime.languages import of_environment, set_language

app = typer.Typer(
    name="orbitmq",
    cls=Nouns,
    help="A message system compatible with Apache RocketMQ 4.9 on the wire and on disk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orbitmq {described()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print version and form.")
    ] = False,
) -> None:
    """A message system compatible with Apache RocketMQ 4.9 on the wire and on disk."""


NamesrvPort = Annotated[
    int, typer.Option(min=0, max=65535, metavar="PORT", help="Port of the name server; 0 picks a free one.")
]


@app.command()
def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Directory for all data whose location the properties file does not set.",
            show_default="~/.orbitmq",
            file_okay=False,
            metavar="DIR",
        ),
    ] = None,
    namesrv_port: NamesrvPort = 9876,
    broker_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port of the broker; 0 picks a free one.", show_default="10911"
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file of the broker.", metavar="FILE")] = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Port of the web page; 0 picks a free one.",
            show_default="8082, else a free one",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve the web page, on loopback.")
    ] = True,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=-1,
            max=65535,
            metavar="PORT",
            help="Port for clients of RocketMQ 5, which speak gRPC; 0 picks a free one, -1 serves none.",
            show_default="8081, else a free one",
        ),
    ] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Run a name server, a broker and the web page. For development and small installations.

    \b
    Examples:
      orbitmq up
      orbitmq up --data-dir ./data --namesrv-port 0 --broker-port 0
    """
    from orbitmq.cli import daemons

    page = daemons.DASHBOARD_PORT if dashboard_port is None else dashboard_port
    daemons.up(data_dir, namesrv_port, broker_port, grpc_port, config, page if dashboard else None, log_level)


@app.command()
def host(
    brokers: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Number of brokers; use at most one per core.")
    ] = 2,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Directory for all data and settings.", show_default="~/.orbitmq", file_okay=False, metavar="DIR"
        ),
    ] = None,
    namesrv_port: NamesrvPort = 9876,
    broker_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Port of the first broker; the others follow, 10 apart. 0 picks free ones.",
        ),
    ] = 10911,
    config: Annotated[
        Path | None,
        typer.Option("-c", help="Properties of all brokers, used at a broker's first start.", metavar="FILE"),
    ] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--name-server",
            metavar="HOST:PORT",
            help="Use these name servers, joined by `;`, and start none here.",
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="NAME", help="The brokers are named NAME-0, NAME-1 and so on.")
    ] = "broker",
    log_level: LogLevel = "warning",
) -> None:
    """Run several brokers of one cluster and a name server. Each has a process that is restarted when it dies.

    A broker uses one core. Topics are created on all brokers, so their queues share the load.
    The data of a broker is in DIR/NAME-0 and so on, its settings are in DIR/NAME-0.conf.

    \b
    Examples:
      orbitmq host --brokers 2
      orbitmq host --brokers 4 --data-dir /data -n 10.0.0.1:9876 -c brokers.conf
    """
    from orbitmq.cli import host

    host.run(brokers, data_dir, namesrv_port, broker_port, config, namesrv_addresses, prefix, log_level)


@app.command()
def proxy(
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option(
            "-n", "--name-server", metavar="HOST:PORT", help="Name servers, joined by `;`. Overrides namesrvAddr."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Overrides grpcServerPort; 0 picks a free one.", show_default="8081"
        ),
    ] = None,
    settings: Settings = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
) -> None:
    """Serve clients of RocketMQ 5, which speak gRPC, in front of a cluster.

    \b
    A broker serves them itself with the option grpcServerPort. This process is
    for clusters of several brokers, of orbitmq or of RocketMQ 5. In front of
    brokers of RocketMQ 4.9 it serves producers only.

    \b
    Examples:
      orbitmq proxy -n 127.0.0.1:9876
      orbitmq proxy -n '10.0.0.1:9876;10.0.0.2:9876' --set bindAddress=0.0.0.0
    """
    from orbitmq.cli import daemons

    daemons.proxy(config, namesrv_addresses, port, settings or (), print_only=print_config, log_level=log_level)


health = typer.Typer(
    name="health",
    cls=CommandGroup,
    help="Readiness probes for a running name server or broker.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(health)

ProbedConfig = Annotated[
    Path | None, typer.Option("-c", help="Properties file of the daemon: its address and TLS.", metavar="FILE")
]
ProbedAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Address to probe.", show_default="on this machine")
]
ProbeTimeout = Annotated[
    float, typer.Option(min=0.1, metavar="SECONDS", help="Not ready without a response in this time.")
]


@health.command("namesrv")
def health_namesrv(
    config: ProbedConfig = None,
    settings: Settings = None,
    address: ProbedAddress = None,
    timeout: ProbeTimeout = 3.0,
) -> None:
    """Whether a name server returns routes.

    \b
    Exit code: 0 ready, 1 not ready (it says why), 2 wrong usage or configuration.

    \b
    Examples:
      orbitmq health namesrv -c namesrv.conf
      orbitmq health namesrv --address 10.0.0.1:9876
    """
    from orbitmq.cli import health as probes

    probes.namesrv(config, settings or (), address, timeout)


@health.command("broker")
def health_broker(
    config: ProbedConfig = None,
    settings: Settings = None,
    address: ProbedAddress = None,
    timeout: ProbeTimeout = 3.0,
) -> None:
    """Whether a broker has its store open and can write to its disk. For masters and slaves.

    With access control, a broker that requires an account counts as ready; its disk is not checked then.
    Exit code: 0 ready, 1 not ready (it says why), 2 wrong usage or configuration.

    \b
    Examples:
      orbitmq health broker -c broker.conf
      orbitmq health broker --address 10.0.0.1:10911 --timeout 1
    """
    from orbitmq.cli import health as probes

    probes.broker(config, settings or (), address, timeout)


store = typer.Typer(
    name="store",
    cls=CommandGroup,
    help="Inspect and repair the store of a broker. Reads stores of Apache RocketMQ, too.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(store)

StoreDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The store directory, which contains commitlog.")]
CommitLogs = Annotated[
    list[Path] | None,
    typer.Option(
        "--commit-log", metavar="DIR", help="Directory of the commit log if it is not DIR/commitlog; repeatable."
    ),
]


@store.command()
def verify(
    directory: StoreDirectory,
    commit_log: CommitLogs = None,
    output: Annotated[
        Literal["table", "json"], typer.Option("-o", "--output", metavar="FORMAT", help="table or json.")
    ] = "table",
) -> None:
    """Check log, queues and index, and each against the others. Changes nothing; a broker may be running.

    Exit code: 0 sound, 1 damaged, 2 the directory cannot be read.
    Each damage is shown with its file, its position there in bytes, and what it means.

    \b
    Examples:
      orbitmq store verify ~/.orbitmq/store
      orbitmq store verify /data/rocketmq/store -o json
    """
    from orbitmq.cli import stores

    stores.verify(directory, commit_log or [], as_json=output == "json")


@store.command()
def dump(
    directory: StoreDirectory,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only messages of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(metavar="ID", help="Only messages of queues with this id.")] = None,
    begin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Only messages stored since then: 2026-11-21T10:00 or milliseconds."
        ),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only messages stored until then.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only messages with this key or unique id.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, metavar="N", help="Print at most N messages.")] = None,
    body: Annotated[bool, typer.Option("--body", help="Print the body, in base64.")] = False,
    commit_log: CommitLogs = None,
) -> None:
    """Print messages as JSON lines, in the order they were stored. Changes nothing; a broker may be running.

    Exit code: 0 all is printed, 1 the log is damaged (intact messages are printed), 2 the directory cannot be read.
    Bodies are decompressed; msg_id is the offset message id; times are milliseconds, local time if no zone is given.

    \b
    Examples:
      orbitmq store dump ~/.orbitmq/store --topic orders --from 2026-11-21
      orbitmq store dump /data/rocketmq/store --key order-17 --body
    """
    from orbitmq.cli import stores

    stores.dump(directory, commit_log or [], topic, queue, begin, end, key, limit, with_body=body)


@store.command()
def rebuild(
    directory: StoreDirectory,
    config: Annotated[
        Path | None,
        typer.Option("-c", help="Properties file of the broker, for what the directory does not show.", metavar="FILE"),
    ] = None,
    commit_log: CommitLogs = None,
) -> None:
    """Rebuild queues and index from the commit log of a stopped broker. If interrupted, the old ones stay.

    File sizes are those of the old files. If none is left, and for the times of delayed messages, the broker's
    configuration is used, else the defaults.
    Exit code: 0 done, 1 the log is damaged (messages before the damage are in), 2 failed, 7 a broker is running.

    \b
    Examples:
      orbitmq store rebuild ~/.orbitmq/store
      orbitmq store rebuild /data/rocketmq/store -c broker.conf
    """
    from orbitmq.cli import stores

    stores.rebuild(directory, commit_log or [], config)


@app.command(
    "pipeline",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def pipeline(context: typer.Context) -> None:
    """Run a Spark job over topics, stores and the lake. Without arguments, list the jobs.

    \b
    Examples:
      orbitmq pipeline
      orbitmq pipeline archive --name-server 127.0.0.1:9876 --lake ./lake
      orbitmq pipeline archive --help
    """
    try:
        from orbitmq.pipeline.command import main as run_job
    except ImportError as error:
        from orbitmq.cli.exit_codes import EXIT_USAGE, fail

        fail("pipeline", f"the jobs need Spark: pip install 'orbitmq[spark]' ({error})", EXIT_USAGE)
    raise SystemExit(run_job(context.args))


@app.command()
def exporter(
    namesrv: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--name-server",
            metavar="HOST:PORT",
            help="Name servers, joined by `;` (else NAMESRV_ADDR, or the context).",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 picks a free one.")
    ] = 5557,
    context_name: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A cluster of `orbitmq context list`.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only this one of the name servers' clusters.")
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map-addr",
            metavar="FROM=TO",
            help="Connect to TO for the broker registered at FROM; repeatable.",
        ),
    ] = None,
    interval: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time between two polls.")] = 15,
    deadline: Annotated[
        float,
        typer.Option(min=1, metavar="SECONDS", help="Time for one broker in one poll; the rest follows in the next."),
    ] = 30,
    forget_after: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a broker that left is reported as down.")
    ] = 3600,
    queue_series: Annotated[
        int,
        typer.Option(
            min=0, max=10_000, metavar="N", help="Number of queues with series of their own: those with the most lag."
        ),
    ] = 1000,
    clients: Annotated[bool, typer.Option(help="Collect metrics of consumers, through the brokers.")] = True,
    steady_labels: Annotated[
        bool, typer.Option("--steady-labels", help="Leave labels empty whose values change all the time.")
    ] = False,
    log_level: LogLevel = "info",
) -> None:
    """Serve the metrics of a cluster to Prometheus, at /metrics. Also for clusters of Apache RocketMQ.

    The account is read from ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY, from the context, or from
    $ROCKETMQ_HOME/conf/tools.yml; there is no flag for it.

    \b
    Examples:
      orbitmq exporter -n 127.0.0.1:9876
      orbitmq exporter -n 10.0.0.1:9876 --host 0.0.0.0 --interval 30
    """
    from orbitmq.cli import exporter

    exporter.run(
        exporter.ExportedCluster(namesrv or (), context_name, cluster, mapped or ()),
        host,
        port,
        exporter.ExporterSettings(interval, deadline, forget_after, queue_series, clients, steady_labels),
        log_level,
    )


@app.command()
def gateway(
    namesrv: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--name-server",
            metavar="HOST:PORT",
            help="Name servers, joined by `;` (else NAMESRV_ADDR, or the context).",
        ),
    ] = None,
    context_name: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="A cluster of `orbitmq context list`.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 picks a free one.")
    ] = 8083,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option("--allowed-host", metavar="NAME", help="A host name that the gateway is reached by; repeatable."),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="Trusted proxy, address or network: its X-Forwarded-For and -Proto are used; repeatable.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve https with this certificate.", dir_okay=False),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate.", dir_okay=False)
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Serve http on an address that is not loopback, for example behind a proxy.")
    ] = False,
    log_level: LogLevel = "warning",
) -> None:
    """Serve messages over HTTP and JSON, for what has no client.

    Send, receive, acknowledge, follow a topic, lag of a group for autoscalers. Callers log in with an account of the
    brokers, which decide what it may do. The gateway has no account.

    \b
    Examples:
      orbitmq gateway -n 127.0.0.1:9876
      orbitmq gateway --host 0.0.0.0 --tls-cert tls.crt --tls-key tls.key
      curl -d '{"body": "hello"}' -H 'Content-Type: application/json' \\
        http://127.0.0.1:8083/v1/topics/Orders/messages
    """
    from orbitmq.cli import gateway

    gateway.run(
        gateway.GatewayFlags(
            namesrv or (), context_name, host, port, allowed_hosts or (), proxies or (), certificate, key, plain
        ),
        log_level,
    )


@app.command()
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell. It completes commands, flags, and names of topics, groups and brokers.

    Names come from the cluster that the command line selects; they are cached for 30 s.

    \b
    Examples:
      source <(orbitmq completion bash)
      orbitmq completion zsh > "${fpath[1]}/_orbitmq"
      orbitmq completion fish > ~/.config/fish/completions/orbitmq.fish
    """
    from orbitmq.cli.completion import SCRIPTS

    typer.echo(SCRIPTS[shell].strip())


@app.command(
    "mqadmin",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
def mqadmin(context: typer.Context) -> None:
    """Run a command of RocketMQ's mqadmin. Commands, flags and output are the same, so scripts work unchanged.

    A failure is one line and an exit code that is not 0. `orbitmq mqadmin` lists the commands.

    \b
    Examples:
      orbitmq mqadmin clusterList -n 127.0.0.1:9876
      orbitmq mqadmin consumerProgress -n 127.0.0.1:9876 -g billing
    """
    from orbitmq.cli.mqadmin import runner

    runner.run(context.args)


def main() -> None:
    """The entry point of the `orbitmq` command, which speaks the language of the environment."""
    set_language(of_environment(os.environ))
    app()
