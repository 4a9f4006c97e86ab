"""What the files below `deploy/` start, moved to a directory and to free ports of this machine: commands, probes.

Paths, hosts and ports are replaced where they stand, and nothing is added: what runs is what is written there. Knows
the forms of the files and nothing of orbitmq's modules.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
SETTINGS, STATE, INSTALLED = "/etc/orbitmq", "/var/lib/orbitmq", "/opt/orbitmq/bin"
LOOPBACK = "127.0.0.1"
SMALL_FILES = "mappedFileSizeCommitLog=1048576\n"  # a test writes little
READY_S = 60
FAILOVER = "compose.failover.yaml"
KUBERNETES = "kubernetes"
KUBERNETES_FAILOVER = "kubernetes-failover"


@dataclass(frozen=True)
class Written:
    """A daemon as a file of a deployment has it."""

    name: str
    command: list[str]
    probe: list[str]
    files: Mapping[str, str]
    """Path -> text of its configuration files."""
    port: int
    known_as: tuple[str, ...] = ()
    """Hosts by which others reach it."""
    grace_s: float = 0.0
    """How long it is given to stop."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.command


class Moved:
    """One daemon on this machine; `table` is what is replaced in every text of its deployment."""

    def __init__(self, written: Written, home: Path, table: Mapping[str, str], port: int) -> None:
        self.written, self.home, self.port = written, home, port
        self.store = home / "state" / "store"
        self._table = {
            SETTINGS: str(home / "etc"),
            STATE: str(home / "state"),
            INSTALLED: str(ORBITMQ.parent),
            f"listenPort={written.port}": f"listenPort={port}",
            "bindAddress=0.0.0.0": f"bindAddress={LOOPBACK}",
            "bindAddress=\n": f"bindAddress={LOOPBACK}\n",
            **table,
        }
        for path, text in written.files.items():
            place = Path(self._here(path))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(self._here(text) + (SMALL_FILES if place.name == "broker.conf" else ""), encoding="utf-8")
        (home / "state").mkdir()
        self.process: ChildProcess | None = None

    def _here(self, text: str) -> str:
        for written, moved in self._table.items():
            text = text.replace(written, moved)
        return text

    def _arguments(self, written: list[str]) -> list[str]:
        return [self._here(argument) for argument in written]

    def start(self, **environment: str) -> ChildProcess:
        self.process = ChildProcess(
            self._arguments(self.written.command),
            output=self.home / "output",
            environment={**_environment(), **self.written.environment, **environment},
            cwd=self.home / "state",
        )
        return self.process

    def probe(self) -> int:
        """The exit code a service manager would see."""
        command = self._arguments(self.written.probe)
        return subprocess.run(command, env=_environment(), capture_output=True, timeout=60, check=False).returncode

    def serves(self) -> bool:
        """Wait until it says where it is, and ask the probe."""
        assert self.process is not None, "started before"
        process = self.process
        process.wait_for(lambda: str(self.port) in process.output(), READY_S, f"{self.written.name} to serve")
        return self.probe() == 0

    def stop(self) -> int:
        assert self.process is not None, "started before"
        return self.process.stop(self.written.grace_s)


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{ORBITMQ.parent}:{os.environ['PATH']}"}


def moved(daemons: list[Written], home: Path, others: Mapping[str, str] | None = None) -> list[Moved]:
    """The daemons of a deployment with a directory and a port each, knowing each other. `others` says where the rest
    of it has moved.
    """
    ports = {daemon.name: free_port(-2, 1) for daemon in daemons}
    table = dict(others or {})
    for daemon in daemons:
        for host in daemon.known_as:
            table[f"{host}:{daemon.port}"] = f"{LOOPBACK}:{ports[daemon.name]}"
            table[f"brokerIP1={host}"] = f"brokerIP1={LOOPBACK}"
            table[f"brokerIP2={host}"] = f"brokerIP2={LOOPBACK}"
    homes = {daemon.name: home / daemon.name for daemon in daemons}
    for path in homes.values():
        path.mkdir()
    return [Moved(daemon, homes[daemon.name], table, ports[daemon.name]) for daemon in daemons]


# -------------------------------------------------------------------------------------------------------------- systemd


@dataclass(frozen=True)
class Unit:
    """A service file of systemd. Keys that may stand several times are not looked at here."""

    path: Path
    sections: configparser.RawConfigParser = field(repr=False)

    def __getitem__(self, key: str) -> str:
        return self.sections["Service"][key]


def units() -> dict[str, Unit]:
    """`namesrv` and `broker`."""
    found = {}
    for path in DEPLOY.glob("systemd/*.service"):
        sections = configparser.RawConfigParser(strict=False)
        sections.optionxform = str  # type: ignore[assignment,method-assign]
        sections.read(path)
        found[path.stem.removeprefix("orbitmq-")] = Unit(path, sections)
    return found


def of_systemd(kind: str) -> Written:
    unit = units()[kind]
    settings = DEPLOY / "systemd" / f"{kind}.conf"
    command = shlex.split(unit["ExecStart"])
    return Written(
        kind,
        command,
        [command[0], "health", *command[1:]],
        {f"{SETTINGS}/{kind}.conf": settings.read_text(encoding="utf-8")},
        {"namesrv": 9876, "broker": 10911}[kind],
        (LOOPBACK,),
        float(unit["TimeoutStopSec"]),
    )


# ---------------------------------------------------------------------------------------------------- image and compose


def image_instructions() -> dict[str, list[str]]:
    """Instruction -> its arguments, each time it stands in the container file; continued lines are joined."""
    text = (DEPLOY / "container" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name.isupper():
            found.setdefault(name, []).append(" ".join(rest.split()))
    return found


def _image_files() -> dict[str, str]:
    return {f"{SETTINGS}/{path.name}": path.read_text("utf-8") for path in (DEPLOY / "container").glob("*.conf")}


def compose(file: str = "compose.yaml") -> dict[str, Any]:
    text = (DEPLOY / "container" / file).read_text(encoding="utf-8")
    parsed = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))  # no variable is set
    assert isinstance(parsed, dict)
    return parsed


def etcds_of_compose(home: Path) -> dict[str, tuple[str, dict[str, str]]]:
    """Each etcd of the compose file with it: its service -> where it has moved, and its environment there."""
    services = compose(FAILOVER)["services"]
    found = {name: service["environment"] for name, service in services.items() if "environment" in service}
    places = {f"{name}:{port}": f"{LOOPBACK}:{free_port()}" for name in found for port in (2379, 2380)}
    moved_to = {}
    for name, variables in found.items():
        texts = {key: value.replace("0.0.0.0", name) for key, value in variables.items()}
        for written, place in places.items():
            texts = {key: value.replace(written, place) for key, value in texts.items()}
        moved_to[name] = places[f"{name}:2379"], {**texts, "ETCD_DATA_DIR": str(home / name)}
    return moved_to


def of_compose(file: str = "compose.yaml") -> Iterator[Written]:
    """Its name servers and brokers."""
    for name, service in compose(file)["services"].items():
        if "command" not in service:
            continue
        kind, *probe = service["healthcheck"]["test"]
        assert kind == "CMD-SHELL"
        own = [setting for setting in service["command"] if setting.startswith("listenPort=")]
        port = int(own[0].partition("=")[2]) if own else {"namesrv": 9876, "broker": 10911}[service["command"][0]]
        yield Written(
            name,
            ["orbitmq", *service["command"]],
            ["sh", "-c", *probe],
            _image_files(),
            port,
            (name,),
            float(service["stop_grace_period"].removesuffix("s")),
        )


# ----------------------------------------------------------------------------------------------------------- Kubernetes


def kustomization(folder: str = KUBERNETES) -> dict[str, Any]:
    found = yaml.safe_load((DEPLOY / folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def objects(folder: str = KUBERNETES) -> list[dict[str, Any]]:
    """Every object of the manifests, without those that a patch deletes."""
    made = kustomization(folder)
    deleted = [yaml.safe_load(one["patch"]) for one in made.get("patches", [])]
    assert all(one["$patch"] == "delete" for one in deleted)
    gone = [(one["kind"], one["metadata"]["name"]) for one in deleted]
    found = []
    for name in made["resources"]:
        path = DEPLOY / folder / name
        if path.is_dir():
            found += objects(path.resolve().name)
        else:
            found += yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [one for one in found if (one["kind"], one["metadata"]["name"]) not in gone]


def of_kind(kind: str, folder: str = KUBERNETES) -> list[dict[str, Any]]:
    return [found for found in objects(folder) if found["kind"] == kind]


def of_kubernetes(folder: str = KUBERNETES) -> Iterator[Written]:
    """Each pod of each stateful set, its variables filled in as kubelet does it."""
    (configuration,) = of_kind("ConfigMap", folder)
    for stateful in of_kind("StatefulSet", folder):
        spec, pod = stateful["spec"], stateful["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        (settings,) = [mount for mount in container["volumeMounts"] if mount["name"] == "configuration"]
        first = spec.get("ordinals", {}).get("start", 0)
        for index in range(first, first + spec["replicas"]):
            name = f"{stateful['metadata']['name']}-{index}"
            namespace = stateful["metadata"]["namespace"]
            values = {"metadata.name": name, "metadata.namespace": namespace}
            values["metadata.labels['apps.kubernetes.io/pod-index']"] = str(index)
            host = f"{name}.{spec['serviceName']}"
            words = [*container.get("command", ["orbitmq"]), *container["args"]]
            yield Written(
                name,
                [_filled(word, container.get("env", []), values) for word in words],
                container["readinessProbe"]["exec"]["command"],
                {f"{settings['mountPath']}/{name}": text for name, text in configuration["data"].items()},
                container["ports"][0]["containerPort"],
                (f"{host}.{namespace}.svc.cluster.local", host),
                float(pod["terminationGracePeriodSeconds"]),
                {one["name"]: values[one["valueFrom"]["fieldRef"]["fieldPath"]] for one in container.get("env", [])},
            )


def _filled(text: str, environment: list[dict[str, Any]], values: Mapping[str, str]) -> str:
    for variable in environment:
        text = text.replace(f"$({variable['name']})", values[variable["valueFrom"]["fieldRef"]["fieldPath"]])
    return text
