"""The role of a promoted broker, kept next to its store, and the broker id of a role.

A slave that became the master must not become a slave again because its configuration, which may be read-only or on a
command line, still says so. To make it a slave, remove the file. The file also records whether clients may still have
offsets from the former master (`is_fresh`): a broker that restarts in the minutes after its promotion must check them.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, Final

from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError, StoreDamaged
from orbitmq.runtime.files import load_with_backup, save_with_backup
from orbitmq.store.options import ASYNC_MASTER, SYNC_MASTER, StoreOptions

_log = logging.getLogger(__name__)

_ROLE: Final = "brokerRole"
_SETTLED: Final = "clientsHaveComeOver"


def kept_role_path(options: StoreOptions) -> Path:
    return options.root / "config" / "promoted.json"


def is_fresh(options: StoreOptions) -> bool:
    """Whether the store is a former slave's and clients may not have switched yet; also if it cannot be read."""
    try:
        kept = _load(options)
    except StoreDamaged as error:
        _log.warning("event=kept_role_unreadable error=%s", error)
        return True
    return kept is not None and not kept.get(_SETTLED)


def keep_role(options: StoreOptions, role: str) -> None:
    """Save the role of a promoted slave. OSError if the disk refuses."""
    save_with_backup(kept_role_path(options), json.dumps({_ROLE: role}))


def settle_role(options: StoreOptions) -> None:
    """Save that clients have switched. OSError if the disk refuses."""
    try:
        kept = _load(options)
    except StoreDamaged:
        return  # reported at the start
    if kept is not None and not kept.get(_SETTLED):
        save_with_backup(kept_role_path(options), json.dumps({**kept, _SETTLED: True}))


def with_kept_role(options: StoreOptions) -> StoreOptions:
    """The options, with the role of a promotion if they still say SLAVE. StoreDamaged if the file cannot be read."""
    if not options.is_slave or (kept := _load(options)) is None:
        return options
    _log.warning(
        "event=role_kept role=%s configured=%s remedy=set_brokerRole_or_remove path=%s",
        kept[_ROLE],
        options.broker_role,
        kept_role_path(options),
    )
    return options.replace(broker_role=kept[_ROLE])


def _load(options: StoreOptions) -> dict[str, Any] | None:
    path = kept_role_path(options)
    if not path.exists():
        return None  # with its backup, if there is one: the operator removes this file
    return load_with_backup(path, _parsed)


def _parsed(text: str) -> dict[str, Any]:
    try:
        kept = json.loads(text)
    except ValueError as error:
        raise StoreDamaged(f"no JSON: {error}") from error
    if not isinstance(kept, dict) or kept.get(_ROLE) not in (ASYNC_MASTER, SYNC_MASTER):
        raise StoreDamaged("no role of a master")
    return kept


def with_fitting_id(options: BrokerOptions, store_options: StoreOptions) -> BrokerOptions:
    """A slave has its configured id, a master 0; RocketMQ ignores a master's configured id as well."""
    if store_options.is_slave:
        if options.broker_id <= 0:
            raise ConfigurationError(
                "option brokerId: a broker with brokerRole SLAVE needs an id above 0, as in brokerId=1"
            )
        return options
    if options.broker_id > 0:
        _log.warning("event=broker_id_ignored id=%d role=%s", options.broker_id, store_options.broker_role)
    return options.replace(broker_id=0)
