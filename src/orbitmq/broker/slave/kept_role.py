"""The role a promotion gave a broker, kept beside its store: a slave that became the master must not be one again
because its configuration, which may be read-only or on a command line, still says so. Whoever wants it to be a slave
removes the file. Also the broker id that goes with a role.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError, StoreDamaged
from orbitmq.runtime.files import load_with_backup, save_with_backup
from orbitmq.store.options import ASYNC_MASTER, SYNC_MASTER, StoreOptions

_log = logging.getLogger(__name__)


def kept_role_path(options: StoreOptions) -> Path:
    return options.root / "config" / "promoted.json"


def is_promoted(options: StoreOptions) -> bool:
    """Whether the store is a former slave's."""
    return kept_role_path(options).exists()


def keep_role(options: StoreOptions, role: str) -> None:
    """Remember the role. OSError when the disk refuses."""
    save_with_backup(kept_role_path(options), json.dumps({"brokerRole": role}))


def with_kept_role(options: StoreOptions) -> StoreOptions:
    """The options, with the role of a promotion where they still say SLAVE. StoreDamaged when that cannot be read."""
    path = kept_role_path(options)
    if not options.is_slave or not path.exists():
        return options
    role = load_with_backup(path, lambda text: json.loads(text)["brokerRole"])
    if role not in (ASYNC_MASTER, SYNC_MASTER):
        raise StoreDamaged(f"{path}: brokerRole {role!r} is none of a master; repair or remove it")
    _log.warning(
        "event=role_kept role=%s configured=%s remedy=set_brokerRole_or_remove path=%s", role, options.broker_role, path
    )
    return options.replace(broker_role=role)


def with_fitting_id(options: BrokerOptions, store_options: StoreOptions) -> BrokerOptions:
    """A slave has an id of its own, a master 0, which RocketMQ sets as well, whatever is configured."""
    if store_options.is_slave:
        if options.broker_id <= 0:
            raise ConfigurationError(
                "option brokerId: a broker with brokerRole SLAVE needs an id above 0, as in brokerId=1"
            )
        return options
    if options.broker_id > 0:
        _log.warning("event=broker_id_ignored id=%d role=%s", options.broker_id, store_options.broker_role)
    return options.replace(broker_id=0)
