"""The role a promotion gave a broker, kept beside its store: a slave that became the master must not be one again
because its configuration, which may be read-only or on a command line, still says so. Whoever wants it to be a slave
removes the file. Also the broker id that goes with a role.

The file tells as well whether clients may still come with what they know from the former master (`is_recently_promoted`): a broker
that ends in the minutes after its promotion has to reckon with them when it is started again, and later not.
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


def promoted_role_path(options: StoreOptions) -> Path:
    return options.root / "config" / "promoted.json"


def is_recently_promoted(options: StoreOptions) -> bool:
    """Whether the store is a former slave's, and clients may not have come over yet: so it is, too, when what is kept
    cannot be read.
    """
    try:
        kept = _load(options)
    except StoreDamaged as error:
        _log.warning("event=kept_role_unreadable error=%s", error)
        return True
    return kept is not None and not kept.get(_SETTLED)


def save_promoted_role(options: StoreOptions, role: str) -> None:
    """Remember the role of a slave that is promoted. OSError when the disk refuses."""
    save_with_backup(promoted_role_path(options), json.dumps({_ROLE: role}))


def mark_clients_moved(options: StoreOptions) -> None:
    """Remember that clients have come over. OSError when the disk refuses."""
    try:
        kept = _load(options)
    except StoreDamaged:
        return  # which the start has told
    if kept is not None and not kept.get(_SETTLED):
        save_with_backup(promoted_role_path(options), json.dumps({**kept, _SETTLED: True}))


def with_promoted_role(options: StoreOptions) -> StoreOptions:
    """The options, with the role of a promotion where they still say SLAVE. StoreDamaged when that cannot be read."""
    if not options.is_slave or (kept := _load(options)) is None:
        return options
    _log.warning(
        "event=role_kept role=%s configured=%s remedy=set_brokerRole_or_remove path=%s",
        kept[_ROLE],
        options.broker_role,
        promoted_role_path(options),
    )
    return options.replace(broker_role=kept[_ROLE])


def _load(options: StoreOptions) -> dict[str, Any] | None:
    path = promoted_role_path(options)
    if not path.exists():
        return None  # with its backup, if there is one: it is the file that the operator removes
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
