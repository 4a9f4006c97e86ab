"""The election that the options of a broker ask for."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final

from orbitmq.agreement.store import AgreementStore
from orbitmq.broker.election.election import Election
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError
from orbitmq.failover.replica import Timing
from orbitmq.store.options import StoreOptions

SCHEMES: Final = {"etcd": "http", "etcds": "https"}
KUBERNETES: Final = "kubernetes"
HOST: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}")
PASSWORD_MAX: Final = 4096  # bytes


def make_election(options: BrokerOptions, store_options: StoreOptions) -> Election | None:
    """None if the options do not ask for one. ConfigurationError names the option that does not fit."""
    if not options.agreement:
        return None
    if options.broker_id <= 0:
        raise ConfigurationError(
            "option brokerId: brokers that elect their master (option agreement) need an id above 0, each its own"
        )
    if not options.broker_name:
        raise ConfigurationError("option brokerName: brokers that elect their master need the same name, write it down")
    if store_options.ha_master_address:
        raise ConfigurationError("option haMasterAddress: the master is elected (option agreement), leave it out")
    if store_options.transient_store_pool_enable:
        raise ConfigurationError(
            "option transientStorePoolEnable: a killed process loses what it has acknowledged to the master; it cannot "
            "be used with agreement"
        )
    if not store_options.ha_copy_whole_log:
        raise ConfigurationError(
            "option haCopyWholeLog: an elected master must have the whole log; leave it out, or true, with agreement"
        )
    store = _store(options)
    return Election(
        store, store_options, slave_id=options.broker_id, timing=Timing(lease_ms=options.agreement_lease_ms),
        min_in_sync=options.min_in_sync_replicas, founds=not store_options.is_slave,
    )  # fmt: skip


def _store(options: BrokerOptions) -> AgreementStore:
    scheme, separator, place = options.agreement.partition("://")
    try:
        if scheme == KUBERNETES and separator:
            from orbitmq.agreement.kubernetes import Kubernetes

            return Kubernetes(place.strip("/"), options.broker_cluster_name, options.broker_name)
        from orbitmq.agreement.etcd import Etcd
    except ImportError as error:
        raise ConfigurationError(f"option agreement: pip install 'orbitmq[failover]' ({error})") from error
    hosts = [host.strip() for host in place.split(",") if host.strip()]
    endpoints = [f"{SCHEMES.get(scheme)}://{host}" for host in hosts]
    if scheme not in SCHEMES or not separator or not hosts or not all(map(HOST.fullmatch, hosts)):
        raise ConfigurationError(
            f"option agreement: {options.agreement!r} is no agreement store, use etcd://host:port,host:port or "
            "kubernetes://namespace"
        )
    return Etcd(
        endpoints, options.broker_cluster_name, options.broker_name, user=options.agreement_user,
        password=_password(options.agreement_password_file),
        tls=ssl.create_default_context(cafile=options.agreement_ca_file or None) if scheme == "etcds" else None,
    )  # fmt: skip


def _password(path: str) -> str:
    if not path:
        return ""
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            return file.read(PASSWORD_MAX).strip()
    except OSError as error:
        raise ConfigurationError(f"option agreementPasswordFile: {path}: {error.strerror}") from error
