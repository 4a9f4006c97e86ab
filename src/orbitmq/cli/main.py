"""The command table of `orbitmq`: names, flags and help, nothing else.

`orbitmq --help` must answer at once, so nothing heavier than typer is imported here; each command imports its work
when it is called. Must not know what a daemon is made of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from orbitmq import __version__
from orbitmq.cli.flags import LogLevel, Settings
from orbitmq.cli.lazy_commands import Nouns

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


def _version(asked: bool) -> None:
    if asked:
        # Files are asked, no module: to import one would take longer than the rest of the answer.
        is_compiled = any(Path(__file__).parents[1].glob("store/index/loops.*.so"))
        typer.echo(f"orbitmq {__version__}{' (compiled)' if is_compiled else ''}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A message system compatible with Apache RocketMQ 4.9 on the wire and on disk."""


@app.command()
def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where everything is kept that the file does not place elsewhere.",
            show_default="~/.orbitmq",
            file_okay=False,
            metavar="DIR",
        ),
    ] = None,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.")] = 9876,
    broker_port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.", show_default="10911")
    ] = None,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file of the broker.", metavar="FILE")] = None,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="0 takes a free port.", show_default="8082, else a free one"
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard/--no-dashboard", help="Serve the web page, on loopback.")
    ] = True,
    log_level: LogLevel = "warning",
) -> None:
    """Run a name server, a broker and the web page, for development and small installations.

    \b
    Examples:
      orbitmq up
      orbitmq up --data-dir ./data --namesrv-port 0 --broker-port 0
    """
    from orbitmq.cli import daemons

    page = daemons.DASHBOARD_PORT if dashboard_port is None else dashboard_port
    daemons.up(data_dir, namesrv_port, broker_port, config, page if dashboard else None, log_level)


@app.command()
def host(
    brokers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="How many; one a core is much.")] = 2,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where they keep everything.", show_default="~/.orbitmq", file_okay=False, metavar="DIR"),
    ] = None,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.")] = 9876,
    broker_port: Annotated[
        int,
        typer.Option(min=0, max=65535, metavar="PORT", help="Of the first; others follow, 10 apart. 0: free ports."),
    ] = 10911,
    config: Annotated[
        Path | None,
        typer.Option("-c", help="Properties for all of them, taken at a broker's first start.", metavar="FILE"),
    ] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option(
            "-n", help="Name servers that run elsewhere, joined by ';', instead of one here.", metavar="NAMESRV"
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="NAME", help="Brokers are called NAME-0, NAME-1 and so on.")
    ] = "broker",
    log_level: LogLevel = "warning",
) -> None:
    """Run a name server and several brokers of one cluster, a process each, begun again when one dies.

    \b
    A broker works on one core; topics are made on all of them, and their queues share the load.
    What a broker keeps is in DIR/NAME-0 and so on, what it was told in DIR/NAME-0.conf.

    \b
    Examples:
      orbitmq host --brokers 2
      orbitmq host --brokers 4 --data-dir /data -n '10.0.0.1:9876;10.0.0.2:9876' -c brokers.conf
    """
    from orbitmq.cli import host

    host.run(brokers, data_dir, namesrv_port, broker_port, config, namesrv_addresses, prefix, log_level)


health = typer.Typer(
    name="health",
    help="Ask a running name server or broker whether it is ready, as a probe does.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(health)

ProbedConfig = Annotated[
    Path | None, typer.Option("-c", help="Properties file of the daemon: its address and TLS.", metavar="FILE")
]
ProbedAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where to ask instead.", show_default="on this machine")
]
ProbeTimeout = Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="No answer in this time is not ready.")]


@health.command("namesrv")
def health_namesrv(
    config: ProbedConfig = None,
    settings: Settings = None,
    address: ProbedAddress = None,
    timeout: ProbeTimeout = 3.0,
) -> None:
    """Whether a name server gives routes.

    \b
    Exit code: 0 ready, 1 not and why, 2 wrong usage or configuration.

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
    """Whether a broker, master or slave, has opened its store and its disk has not failed.

    \b
    Where access control is on, a broker that asks for an account is ready; nothing is told of its disk then.
    Exit code: 0 ready, 1 not and why, 2 wrong usage or configuration.

    \b
    Examples:
      orbitmq health broker -c broker.conf
      orbitmq health broker --address 10.0.0.1:10911 --timeout 1
    """
    from orbitmq.cli import health as probes

    probes.broker(config, settings or (), address, timeout)


store = typer.Typer(
    name="store",
    help="Look into the store directory of a broker, orbitmq's or Apache RocketMQ's, and repair it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(store)

StoreDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="The store directory, which holds commitlog.")]
CommitLogs = Annotated[
    list[Path] | None,
    typer.Option("--commit-log", metavar="DIR", help="Where the commit log lies if not in DIR/commitlog; repeatable."),
]


@store.command()
def verify(
    directory: StoreDirectory,
    commit_log: CommitLogs = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check log, queues and index, and each against the others. Changes nothing; a broker may be running.

    \b
    Exit code: 0 sound, 1 damaged, 2 the directory cannot be read.
    Damage is told with its file, its position there in bytes, and what it means.

    \b
    Examples:
      orbitmq store verify ~/.orbitmq/store
      orbitmq store verify /data/rocketmq/store --json
    """
    from orbitmq.cli import stores

    stores.verify(directory, commit_log or [], as_json=as_json)


@store.command()
def dump(
    directory: StoreDirectory,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Messages of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(metavar="ID", help="Messages of queues with this id.")] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Stored then or later; 2026-11-21T10:00 or milliseconds."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored then or earlier.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Messages with this key or unique id.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many.")] = None,
    body: Annotated[bool, typer.Option("--body", help="With the body, in base64.")] = False,
    commit_log: CommitLogs = None,
) -> None:
    """Print messages, one JSON object a line, in the order they were stored. Changes nothing; a broker may be running.

    \b
    Exit code: 0 all is printed, 1 the log is damaged (what is whole is printed), 2 the directory cannot be read.
    Bodies are unpacked; msg_id is the offset message id; times are milliseconds, local time if no zone is given.

    \b
    Examples:
      orbitmq store dump ~/.orbitmq/store --topic orders --from 2026-11-21 --limit 10
      orbitmq store dump /data/rocketmq/store --key order-17 --body
    """
    from orbitmq.cli import stores

    stores.dump(directory, commit_log or [], topic, queue, begin, end, key, limit, with_body=body)


@store.command()
def rebuild(
    directory: StoreDirectory,
    config: Annotated[
        Path | None,
        typer.Option("-c", help="Properties file of the broker, for what the directory does not tell.", metavar="FILE"),
    ] = None,
    commit_log: CommitLogs = None,
) -> None:
    """Make queues and index anew from the commit log of a stopped broker. An interruption leaves the old ones.

    \b
    Sizes of files are those of the old ones. Where none is left, and for the delays of messages that wait, the
    broker's configuration is asked, else the defaults hold.
    Exit code: 0 done, 1 the log is damaged (what lies before is in), 2 it could not be done, 7 a broker is running.

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
    """Run a job over topics, stores and the lake with Spark; without arguments it tells which there are.

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
            "--namesrv",
            metavar="HOST:PORT",
            help="Name servers, joined by `;`. Else NAMESRV_ADDR, or the context.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.")] = 5557,
    context_name: Annotated[str | None, typer.Option("--context", metavar="NAME", help="A named cluster.")] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", metavar="NAME", help="Only this one, of several.")
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map-addr", metavar="REGISTERED=REACHED", help="Where a broker is reached; repeatable."),
    ] = None,
    interval: Annotated[float, typer.Option(min=1, metavar="SECONDS", help="From one round to the next.")] = 15,
    deadline: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="For one broker in one round; the rest comes in the next.")
    ] = 30,
    forget_after: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long a broker that left is still told as down.")
    ] = 3600,
    queue_series: Annotated[
        int,
        typer.Option(min=0, max=10_000, metavar="N", help="Queues with series of their own: the farthest behind."),
    ] = 1000,
    clients: Annotated[bool, typer.Option(help="Ask consumers for their own figures, through the brokers.")] = True,
    steady_labels: Annotated[
        bool, typer.Option("--steady-labels", help="Leave labels empty that make new series all the time.")
    ] = False,
    log_level: LogLevel = "info",
) -> None:
    """Serve the figures of a cluster, orbitmq's or Apache RocketMQ's, to Prometheus at /metrics.

    \b
    An account is taken from ORBITMQ_ACCESS_KEY and ORBITMQ_SECRET_KEY, from the context, or from
    $ROCKETMQ_HOME/conf/tools.yml; it stands on no command line.

    \b
    Examples:
      orbitmq exporter -n 127.0.0.1:9876
      orbitmq exporter -n '10.0.0.1:9876;10.0.0.2:9876' --host 0.0.0.0 --interval 30
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
def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script with which a shell completes commands, flags, and the names of topics, groups and brokers.

    \b
    Names come from the cluster that the line means so far, and are kept for 30 s.

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
    """The commands of RocketMQ's own tool by their names and letters, so that scripts move unchanged.

    \b
    They print what that tool prints; but a failure is one line, and an exit code that is not 0. `orbitmq mqadmin`
    lists them.

    \b
    Examples:
      orbitmq mqadmin clusterList -n 127.0.0.1:9876
      orbitmq mqadmin consumerProgress -n 127.0.0.1:9876 -g billing
    """
    from orbitmq.cli.mqadmin import running

    running.run(context.args)


def main() -> None:
    """The entry point of the `orbitmq` command."""
    app()
