"""Python clients on PyPI, for RocketMQ and for Kafka, each in an environment of its own below var/bench, at a fixed
version.

Nothing in orbitmq depends on them. One that cannot be installed or imported is reported with the reason.
"""

from __future__ import annotations

import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOME = ROOT / "var" / "bench" / "peers"
INSTALL_TIMEOUT_S = 180  # the largest brings 66 MB of gRPC with it


@dataclass(frozen=True)
class Peer:
    """A package of PyPI, and the module that must import for it to be of use."""

    package: str
    version: str
    module: str
    what: str
    beside: tuple[str, ...] = ()  # other packages that its load program needs

    @property
    def name(self) -> str:
        return f"{self.package} {self.version}"

    @property
    def python(self) -> Path:
        return HOME / f"{self.package}-{self.version}" / "bin" / "python"

    def problem(self) -> str | None:
        """Install it unless that was done before; None when it can be imported, else the last line of the error."""
        if not self.python.exists():
            venv.create(self.python.parents[1], with_pip=True)
        usable = ("-c", f"import {self.module}")
        if self._fails(*usable) is None:
            return None
        install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        return self._fails(*install, f"{self.package}=={self.version}", *self.beside) or self._fails(*usable)

    def _fails(self, *arguments: str) -> str | None:
        done = subprocess.run(
            [str(self.python), *arguments], capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        return (done.stderr.strip().splitlines() or ["no reason given"])[-1] if done.returncode else None


CPP = Peer("rocketmq", "0.4.4", "rocketmq.client", "the C++ client behind ctypes, its library in the wheel")
GRPC = Peer("rocketmq-python-client", "5.1.2", "rocketmq", "gRPC, through the proxy of RocketMQ 5.3.3")
AIOKAFKA = Peer("aiokafka", "0.14.0", "aiokafka, uvloop", "Kafka's protocol on asyncio", ("uvloop==0.23.0",))
CONFLUENT = Peer("confluent-kafka", "2.16.1", "confluent_kafka", "librdkafka behind an extension of C")
OTHERS = (
    Peer("rocketmq-client-python", "2.0.0", "rocketmq.client", "the C++ client behind ctypes, library not included"),
    Peer("pyrocketmq", "0.3.4", "pyrocketmq.client.producer", "the Java client inside this process, by JPype"),
)
