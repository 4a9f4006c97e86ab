"""Options of a proxy. Keys are those of RocketMQ's proxy where it has one for the purpose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.runtime.options import Options, option


@dataclass(frozen=True)
class ProxyOptions(Options):
    """Options of one proxy."""

    namesrv_addr: str = option("namesrvAddr", "", "Name servers of the cluster: host:port, several separated by `;`.")
    grpc_server_port: int = option(
        "grpcServerPort", 8081, "Port for clients, plain or encrypted; 0 takes any free one.", minimum=0, maximum=65_535
    )
    max_delay_time_ms: int = option(
        "maxDelayTimeMills",
        86_400_000,
        "How far ahead clients may have a message delivered; brokers have a limit of their own, timerMaxDelaySec.",
        unit="ms",
        minimum=0,
    )
    bind_address: str = option(
        "bindAddress", "127.0.0.1", "Address to listen on. Every address with 0.0.0.0 or an empty value."
    )
    advertised_address: str = option(
        "advertisedAddress",
        "",
        "Address that clients get which have named none themselves. Empty means bindAddress, or the loopback address.",
    )
    acl_enable: bool = option("aclEnable", False, "Check signatures of clients against the accounts in aclFile.")
    acl_file: str = option(
        "aclFile",
        "conf/plain_acl.yml",
        "File with the accounts, below rocketmqHome; the same as that of the brokers, which decide what each may do.",
    )
    rocketmq_home: str = option("rocketmqHome", "", "Directory of aclFile. Empty means the working directory.")
    access_key: str = option("accessKey", "", "Account by which the proxy itself asks brokers.")
    secret_key: str = option("secretKey", "", "Secret of that account.", secret=True)

    @property
    def name_servers(self) -> tuple[str, ...]:
        return tuple(one.strip() for one in self.namesrv_addr.split(";") if one.strip())

    @property
    def host(self) -> str:
        """For clients that have named no address themselves."""
        if self.advertised_address:
            return self.advertised_address
        return self.bind_address if self.bind_address not in ("", "0.0.0.0", "::") else "127.0.0.1"  # noqa: S104 - compared with, not bound to

    @property
    def home(self) -> Path:
        return Path(self.rocketmq_home or ".").expanduser().absolute()
