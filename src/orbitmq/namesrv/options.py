"""Options of a name server. Keys are RocketMQ's where it has one for the purpose."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orbitmq.runtime.options import Options, option

_PORT_MAX = 65_535


@dataclass(frozen=True)
class NamesrvOptions(Options):
    """Options of one name server."""

    listen_port: int = option(
        "listenPort", 9876, "Port clients and brokers connect to; 0 takes any free one.", minimum=0, maximum=_PORT_MAX
    )
    bind_address: str = option(
        "bindAddress",
        "127.0.0.1",
        "Address to listen on. RocketMQ listens on every address; orbitmq does so only with 0.0.0.0 or an empty value.",
    )
    kv_config_path: str = option(
        "kvConfigPath", "~/namesrv/kvConfig.json", "File that keeps the key-value settings; written at the first one."
    )
    config_store_path: str = option(
        "configStorePath",
        "~/namesrv/namesrv.properties",
        "File the effective options are written to when a tool changes one; pass it with -c to start with them.",
    )
    order_message_enable: bool = option(
        "orderMessageEnable",
        False,
        "Put the order settings of namespace ORDER_TOPIC_CONFIG into routes.",
        changeable=True,
    )
    idle_seconds_max: int = option(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection without traffic is closed after this time.",
        unit="s",
        minimum=1,
    )

    @property
    def kv_config_file(self) -> Path:
        return Path(self.kv_config_path).expanduser()

    @property
    def config_store_file(self) -> Path:
        return Path(self.config_store_path).expanduser()
