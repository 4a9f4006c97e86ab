"""The proxy of RocketMQ 5.3.3 with a broker inside, for clients that speak gRPC. Knows nothing of what is measured."""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path

from tests.support.java_rocketmq import ROCKETMQ_5, SMALL_JVM, JavaBroker, java_command
from tests.support.process import ChildProcess, ProcessFailed, accepts, free_port, write_properties

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
    """A broker of 5.3.3 that answers gRPC at `endpoint`, too."""

    def __init__(self, namesrv: str, *, jvm: tuple[str, ...] = SMALL_JVM, **config: object) -> None:
        super().__init__(namesrv, ROCKETMQ_5, jvm=jvm, **config)  # type: ignore[arg-type]
        self._grpc_port = free_port()
        self.endpoint = f"127.0.0.1:{self._grpc_port}"

    def _launch(self) -> ChildProcess:
        write_properties(self.home / "broker.properties", self._properties())
        settings = {
            "rocketMQClusterName": self.cluster,
            "namesrvAddr": self.namesrv_address,
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": free_port(),
        }
        (self.home / "proxy.json").write_text(json.dumps(settings), encoding="utf-8")
        command = java_command(ROCKETMQ_5, _MAIN, self.home, jvm=self._jvm, process="JavaProxy")
        command[command.index("-cp") + 1] = class_path()
        own = ("-pm", "local", "-bc", self.home / "broker.properties", "-pc", self.home / "proxy.json")
        return ChildProcess(
            [*command, *map(str, own), "-n", self.namesrv_address],
            output=self.home / "JavaProxy.out",
            environment={"ROCKETMQ_HOME": str(self.home), "RMQ_PROXY_HOME": str(self.home), "NAMESRV_ADDR": ""},
            cwd=self.home,
        )

    def _is_ready(self, process: ChildProcess) -> bool:
        return "startup successfully" in process.output() and accepts(self._grpc_port)
