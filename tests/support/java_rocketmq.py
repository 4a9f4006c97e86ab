"""Apache RocketMQ itself, the oracle of live tests: name server, broker and drivers of its client as processes.

Everything runs on loopback and free ports, below one directory a process, and ends with the test. Knows nothing of
orbitmq.

    with JavaNameServer() as names, JavaBroker(names.address) as broker:
        rows = run_driver("send", "--namesrv", names.address, "--topic", "orders", "--count", "100")
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.support.process import ChildProcess, Daemon, ProcessFailed, accepts, free_port, write_properties
from tests.support.registration import is_registered

ROCKETMQ_4 = "4.9.7"
ROCKETMQ_5 = "5.3.3"

_MODULE = Path(__file__).parents[1] / "java"
_LOGGING = _MODULE / "src/main/resources/logback.xml"
# Small, and quick to start: the figures of these processes are not the test's concern.
SMALL_JVM = (
    "-Xmx768m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-XX:+ErrorFileToStderr",
)
# On Java 17 a 4.9.7 broker cannot unmap its files without these, and then leaves `abort` behind at a clean stop.
_OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.nio", "sun.nio.ch", "jdk.internal.ref")
)
# A well-filled disk of the test machine must not make the broker refuse messages or delete files.
_FULL_DISK_IS_FINE = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.99",
)
# Turning the wheel of its timer messages, which no test sends, takes an idle 5.3.3 broker a quarter of a core.
_FIVES_COSTS = {"timerWheelEnable": "false"}


@functools.cache
def class_path(version: str = ROCKETMQ_4) -> str:
    """Class path of the drivers and of that RocketMQ version; builds the Java module when it is not up to date."""
    built = subprocess.run(
        [_MODULE / "build.sh"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if built.returncode:
        raise ProcessFailed(f"tests/java/build.sh failed:\n{built.stdout[-3000:]}")
    return (_MODULE / "target" / f"classpath-{version.replace('.', '')}.txt").read_text()


def archive_path(version: str, kind: str) -> Path:
    """Where the class archive for a `driver` or a `daemon` lies, if it was made."""
    return _MODULE / "target" / f"{kind}-{version.replace('.', '')}.jsa"


def java_command(version: str, main: str, home: Path, *, jvm: tuple[str, ...] = SMALL_JVM, process: str) -> list[str]:
    """The command line that runs class `main` with all its logs and local state below `home`."""
    properties = {
        "user.home": home,
        "java.io.tmpdir": home,
        "rocketmq.home.dir": home,
        "orbitmq.logs": home,
        "orbitmq.process": process,
        "rocketmq.client.logRoot": home,
        "rocketmq.client.localOffsetStoreDir": home / "offsets",
        "rocketmq.client.logUseSlf4j": "true",
        "rmq.logback.configurationFile": _LOGGING,  # 5.x has its own copy of logback
        # Consumers look for changed assignments and lock their queues every 20 s; a test that hits that period is slow.
        "rocketmq.client.rebalance.waitInterval": 2000,
        "rocketmq.client.rebalance.minInterval": 100,  # 5.x; a second otherwise
        "rocketmq.client.rebalance.lockInterval": 2000,
        "java.net.preferIPv4Stack": "true",
    }
    definitions = [f"-D{name}={value}" for name, value in properties.items()]
    archive = archive_path(version, "driver" if main.startswith("orbitmq.") else "daemon")
    if archive.exists() and _is_small(jvm):
        jvm = (*jvm, f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
    return ["java", *_FULL_DISK_IS_FINE, *jvm, *_OPENS, *definitions, "-cp", class_path(version), main]


def _is_small(jvm: tuple[str, ...]) -> bool:
    """Whether an archive fits: one is made with these options, and more properties do not matter to it."""
    more = jvm[len(SMALL_JVM) :]
    return jvm[: len(SMALL_JVM)] == SMALL_JVM and all(option.startswith("-D") for option in more)


class _JavaDaemon(Daemon):
    """A RocketMQ daemon: `_main` with a properties file."""

    _main: str

    def __init__(
        self, version: str, port: int, home: Path | None, jvm: tuple[str, ...], *, throw_away: bool = True
    ) -> None:
        super().__init__(port, home, throw_away=throw_away)
        self.version = version
        self._jvm = jvm

    @abstractmethod
    def _properties(self) -> Mapping[str, object]:
        """The content of its properties file."""

    def _launch(self) -> ChildProcess:
        name = type(self).__name__
        _write_logback_files(self.home)
        configuration = write_properties(self.home / f"{name}.properties", self._properties())
        command = java_command(self.version, self._main, self.home, jvm=self._jvm, process=name)
        return ChildProcess(
            [*command, "-c", str(configuration)],
            output=self.home / f"{name}.out",
            environment={"ROCKETMQ_HOME": str(self.home), "NAMESRV_ADDR": ""},
            cwd=self.home,
        )

    def _is_ready(self, process: ChildProcess) -> bool:
        return "boot success" in process.output() and accepts(self.port)


class JavaNameServer(_JavaDaemon):
    """An Apache RocketMQ name server."""

    _main = "org.apache.rocketmq.namesrv.NamesrvStartup"

    def __init__(
        self,
        version: str = ROCKETMQ_4,
        *,
        port: int | None = None,
        home: Path | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
        **config: object,
    ) -> None:
        super().__init__(version, port or free_port(), home, jvm)
        self._config = config

    def _properties(self) -> Mapping[str, object]:
        return {"listenPort": self.port, "rocketmqHome": self.home, **self._config}


class JavaBroker(_JavaDaemon):
    """An Apache RocketMQ broker registered at `namesrv`; keyword arguments are keys of its properties file.

    `store_dir` holds commitlog/, consumequeue/, config/ and so on, and survives the broker when it was given.
    """

    _main = "org.apache.rocketmq.broker.BrokerStartup"

    def __init__(
        self,
        namesrv: str,
        version: str = ROCKETMQ_4,
        *,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        store_dir: Path | None = None,
        home: Path | None = None,
        jvm: tuple[str, ...] = SMALL_JVM,
        **config: object,
    ) -> None:
        # Beside its port a broker takes the VIP port (-2) and the replication port (+1).
        super().__init__(version, free_port(-2, 1), home, jvm, throw_away=store_dir is None)
        self.namesrv_address = namesrv
        self.name = name
        self.cluster = cluster
        self.store_dir = store_dir or self.home / "store"
        self._config = config

    def _properties(self) -> Mapping[str, object]:
        return {
            "rocketmqHome": self.home,
            "namesrvAddr": self.namesrv_address,
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": 0,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": self.port,
            "storePathRootDir": self.store_dir,
            "storePathCommitLog": self.store_dir / "commitlog",
            "autoCreateTopicEnable": "true",
            "diskMaxUsedSpaceRatio": 95,
            # A busy test machine must not make it refuse what waited a little.
            "waitTimeMillsInSendQueue": 30_000,
            "osPageCacheBusyTimeOutMills": 30_000,
            **(_FIVES_COSTS if self.version == ROCKETMQ_5 else {}),
            **self._config,
        }

    def _is_ready(self, process: ChildProcess) -> bool:
        """5.3.3 says so before its name server knows it."""
        if not super()._is_ready(process):
            return False
        addresses = self.namesrv_address.split(";")
        return self.version != ROCKETMQ_5 or all(is_registered(address, self.name) for address in addresses)


class JavaController(_JavaDaemon):
    """The controller of brokers of 5.3.3 that elect their master, the only one of its group."""

    _main = "org.apache.rocketmq.controller.ControllerStartup"

    def __init__(self) -> None:
        super().__init__(ROCKETMQ_5, free_port(), None, SMALL_JVM)

    def _properties(self) -> Mapping[str, object]:
        return {
            "rocketmqHome": self.home,
            "controllerDLegerGroup": "group1",
            "controllerDLegerSelfId": "n0",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.port}",
            "controllerStorePath": self.home / "controller",
            "mappedFileSize": 16 << 20,
        }


class JavaSystem:
    """A name server and one broker of it, of the same version: the counterpart of `orbitmq up`."""

    def __init__(self, version: str = ROCKETMQ_4, *, store_dir: Path | None = None, **broker_config: object) -> None:
        self.nameserver = JavaNameServer(version)
        self.broker = JavaBroker(self.nameserver.address, version, store_dir=store_dir, **broker_config)  # type: ignore[arg-type]
        self.namesrv_address = self.nameserver.address
        self.address = self.broker.address
        self.store_dir = self.broker.store_dir

    def stop(self) -> int:
        """Clean stop of the broker, whose exit code is returned, and the end of its name server."""
        code = self.broker.stop()
        self.nameserver.kill()  # nothing of it is kept
        return code

    def check_alive(self) -> None:
        """ProcessFailed when one of them has ended by itself; see `Daemon.check_alive`."""
        self.nameserver.check_alive()
        self.broker.check_alive()

    def kill(self) -> None:
        """kill -9 of both."""
        self.broker.kill()
        self.nameserver.kill()

    def __enter__(self) -> Self:
        self.nameserver.__enter__()
        try:
            self.broker.__enter__()
        except BaseException:
            self.nameserver.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.broker.__exit__(*error)
        self.nameserver.__exit__(*error)


def _write_logback_files(home: Path) -> None:
    """4.9.7 reads these names below its home; the settings are those of the drivers' own logback.xml."""
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for daemon in ("broker", "namesrv"):
        shutil.copy(_LOGGING, home / "conf" / f"logback_{daemon}.xml")


class Driver:
    """A Java driver at work (class `main`); it prints one JSON object a line."""

    def __init__(
        self,
        *arguments: object,
        version: str = ROCKETMQ_4,
        main: str = "orbitmq.drivers.Main",
        jvm: tuple[str, ...] = SMALL_JVM,
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="driver-"))
        self._rows: list[dict[str, Any]] = []
        self._read_to = 0
        self._reading = threading.Lock()  # some wait in another thread
        command = java_command(version, main, self._home, jvm=jvm, process="driver")
        output = self._home / "rows.jsonl"
        self.process = ChildProcess(
            [*command, *map(str, arguments)], output=output, cwd=self._home, listens=_JOBS in arguments
        )

    def rows(self) -> list[dict[str, Any]]:
        """What it printed up to now."""
        with self._reading:
            self._rows += self.new_rows()
            return list(self._rows)

    def new_rows(self) -> list[dict[str, Any]]:
        """What it printed since the last call."""
        with self.process.output_path.open("rb") as file:
            file.seek(self._read_to)
            whole, end, _unfinished = file.read().rpartition(b"\n")
        self._read_to += len(whole) + len(end)
        return [json.loads(line) for line in whole.splitlines()]

    def wait_for_row(self, condition: Callable[[dict[str, Any]], bool], timeout_s: float, what: str) -> dict[str, Any]:
        """The first row `condition` holds for."""
        found = self.process.wait_for(lambda: [row for row in self.rows() if condition(row)], timeout_s, what)
        return found[0]

    def wait_for_event(self, name: str, timeout_s: float = 60) -> dict[str, Any]:
        """The first row with this "event"; consumers print "started" once they are registered and assigned."""
        return self.wait_for_row(lambda row: row.get("event") == name, timeout_s, f"event {name}")

    def finish(self, timeout_s: float = 60) -> list[dict[str, Any]]:
        """All its rows, once it ended by itself with success."""
        if self.process.wait(timeout_s):
            raise self.process.failed(f"driver failed with {self.process.exit_code}")
        return self.rows()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.stop(grace_s=10)
        shutil.rmtree(self._home, ignore_errors=True)


_JOBS = "jobs"
# Those that end by themselves and leave nothing behind them. No consumer: one that is warm is not idle where a seek has
# to find it so, and may get messages twice while its group is still being left by the one before.
_CLEAN = frozenset({"send", "fill", "admin", "pull"})
# Offsets of broadcasting consumers and what sends traces stay with a process, and one that is warm overruns a busy
# broker with messages nobody answers.
_OWN_PROCESS = frozenset({"--offsets", "--trace", "--instance", "oneway"})


class _Jobs:
    """One process of one version in which such drivers run one after the other: a JVM takes longer to start than most
    of them to run.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._driver: Driver | None = None
        self._turn = threading.Lock()
        atexit.register(self._end)

    def run(self, words: list[str], timeout_s: float) -> list[dict[str, Any]] | None:
        """The rows of one driver; None when another one is at work."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            return self._run(words, timeout_s)
        except BaseException:
            self._end()  # whatever it left behind
            raise
        finally:
            self._turn.release()

    def _run(self, words: list[str], timeout_s: float) -> list[dict[str, Any]]:
        driver = self._driver = self._driver or Driver(_JOBS, version=self._version)
        rows: list[dict[str, Any]] = []

        def has_ended() -> bool:
            rows.extend(driver.new_rows())
            return bool(rows) and "job" in rows[-1]

        driver.process.tell("\t".join(words))
        driver.process.wait_for(has_ended, timeout_s, " ".join(words))
        failure = rows.pop()["job"]
        if failure is not None:
            raise driver.process.failed(f"{' '.join(words)}: {failure}")
        return rows

    def _end(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.process.kill()
            driver.__exit__()


_jobs = functools.cache(_Jobs)


def run_driver(*arguments: object, version: str = ROCKETMQ_4, timeout_s: float = 120) -> list[dict[str, Any]]:
    """Run one driver to its end and return its rows; ProcessFailed with its output when it fails."""
    words = [str(argument) for argument in arguments]
    if words[0] in _CLEAN and _OWN_PROCESS.isdisjoint(words) and not any(set("\t\n\r") & set(one) for one in words):
        rows = _jobs(version).run(words, timeout_s)
        if rows is not None:
            return rows
    with Driver(*words, version=version) as driver:
        return driver.finish(timeout_s)
