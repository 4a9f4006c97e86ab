"""The proxy of RocketMQ 5.3.3, with a broker inside or alone, for clients that speak gRPC. Knows nothing of what is
measured.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

from tests.support.certificates import Pair
from tests.support.java_rocketmq import ROCKETMQ_5, SMALL_JVM, JavaBroker, java_command
from tests.support.process import ChildProcess, Daemon, ProcessFailed, accepts, free_port, write_properties

ROOT = Path(__file__).parents[1]
_POM = Path(__file__).parent / "proxy" / "pom.xml"
_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"


@functools.cache
def class_path() -> str:
    """Of the proxy, resolved by Maven once. ProcessFailed with what it said when it cannot."""
    kept = ROOT / "var" / "bench" / "proxy-classpath.txt"
    if not kept.exists() or not Path(kept.read_text().split(":")[0]).exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", "-f", str(_POM), _GOAL, f"-Dmdep.outputFile={kept}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ProcessFailed(f"Maven does not find the proxy: {done.stdout[-500:]}")
    return kept.read_text()


class JavaProxy(JavaBroker):
    """A broker of 5.3.3 that answers gRPC at `endpoint`, too. Without a `certificate` it makes one."""

    def __init__(
        self, namesrv: str, *, jvm: tuple[str, ...] = SMALL_JVM, certificate: Pair | None = None, **config: object
    ) -> None:
        super().__init__(namesrv, ROCKETMQ_5, jvm=jvm, **config)  # type: ignore[arg-type]
        self._certificate = certificate
        self._grpc_port = free_port()
        self.endpoint = f"127.0.0.1:{self._grpc_port}"

    def _launch(self) -> ChildProcess:
        write_properties(self.home / "broker.properties", self._properties())
        own = ("-pm", "local", "-bc", self.home / "broker.properties")
        return _launch(
            self.home, self.namesrv_address, self.cluster, self._grpc_port, own, self._jvm, self._certificate
        )

    def _is_ready(self, process: ChildProcess) -> bool:
        return "startup successfully" in process.output() and accepts(self._grpc_port)


class JavaClusterProxy(Daemon):
    """The proxy alone, in front of the cluster of a name server."""

    def __init__(self, namesrv: str, cluster: str = "DefaultCluster") -> None:
        super().__init__(free_port(), None)
        self.namesrv_address = namesrv
        self._cluster = cluster

    def _launch(self) -> ChildProcess:
        return _launch(self.home, self.namesrv_address, self._cluster, self.port, ("-pm", "cluster"), SMALL_JVM)

    def _is_ready(self, process: ChildProcess) -> bool:
        return "startup successfully" in process.output() and accepts(self.port)


def _launch(
    home: Path, namesrv: str, cluster: str, port: int, own: tuple[object, ...], jvm: tuple[str, ...],
    certificate: Pair | None = None,
) -> ChildProcess:  # fmt: skip
    settings = {
        "rocketMQClusterName": cluster,
        "namesrvAddr": namesrv,
        "grpcServerPort": port,
        "remotingListenPort": free_port(),
    }
    if certificate is not None:
        files = {"tlsCertPath": str(certificate.certificate), "tlsKeyPath": str(certificate.key)}
        settings |= {"tlsTestModeEnable": False, **files}
    (home / "proxy.json").write_text(json.dumps(settings), encoding="utf-8")
    command = java_command(ROCKETMQ_5, _MAIN, home, jvm=jvm, process="JavaProxy")
    command[command.index("-cp") + 1] = class_path()
    return ChildProcess(
        [*command, *map(str, own), "-pc", str(home / "proxy.json"), "-n", namesrv],
        output=home / "JavaProxy.out",
        environment={"ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home), "NAMESRV_ADDR": ""},
        cwd=home,
    )
