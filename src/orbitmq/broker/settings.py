"""The broker's options at run time: their values, and which of them a tool may change.

Options are read at each use, so a change is one assignment; it is written to the configuration file first. Options that
set the broker's identity, addresses and file paths can never be changed by a peer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from orbitmq.errors import ConfigurationError, RequestRejected
from orbitmq.message.config import DataVersion
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.files import save_with_backup
from orbitmq.runtime.options import Option, Options, change, rewrite_properties
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_admin import GetBrokerConfigResponseHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings, encode_settings

_log = logging.getLogger(__name__)

# Keys that RocketMQ's tools cannot do without, though there is nothing to set here.
STANDING = {"filterServerNums": "0"}
REMEDY = "set it in the configuration file and restart the broker"


class Settings:
    """Handlers for the options. `fixed` are further pairs that may be read; `file` is the configuration file: without
    one, changes are lost at the next start.
    """

    def __init__(
        self,
        options: tuple[Options, ...],
        clock: Clock,
        on_change: Callable[[set[str]], None],
        fixed: Mapping[str, str],
        file: Path | None = None,
    ) -> None:
        self._options = options
        self._clock = clock
        self._on_change = on_change
        self._fixed = {**STANDING, **fixed}
        self._file = file
        self._changing = asyncio.Lock()
        self.version = DataVersion(0, clock.now_ms())

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_BROKER_CONFIG, self.read)
        router.add_change(RequestCode.UPDATE_BROKER_CONFIG, self.update)

    def read(self, _connection: Connection, command: Command) -> Command:
        """Every option with its value."""
        own = {key: value for options in self._options for key, value in options.pairs().items()}
        header = GetBrokerConfigResponseHeader(encode(self.version).decode())
        return command.response(ResponseCode.SUCCESS, header=header, body=encode_settings({**self._fixed, **own}))

    async def update(self, connection: Connection, command: Command) -> Command:
        """Change options, all of a request or none. Keys that orbitmq does not have are ignored, as in RocketMQ."""
        pairs = decode_settings(command.body)
        async with self._changing:
            if fixed := sorted(pairs.keys() & self._fixed.keys()):
                raise _refused(fixed[0])
            chosen = [(options, self._changes(options, pairs)) for options in self._options]
            keys = {key for _, changes in chosen for key in changes}
            if unknown := sorted(pairs.keys() - keys):
                _log.warning("event=settings_ignored keys=%s peer=%s", ",".join(unknown)[:200], connection.address)
            if keys:
                await self._save({key: pairs[key].strip() for key in keys})
                for options, changes in chosen:
                    change(options, changes)
                self.version = self.version.next(self._clock.now_ms())
                self._on_change(keys)
                for key in sorted(keys):
                    _log.info("event=setting_changed key=%s value=%s peer=%s", key, pairs[key], connection.address)
        return command.response(ResponseCode.SUCCESS)

    @staticmethod
    def _changes(options: Options, pairs: Mapping[str, str]) -> dict[str, str]:
        """What of `pairs` these options should become; RequestRejected when one of them may not."""
        declared = options.table()
        changes = {key: text for key, text in pairs.items() if key in declared}
        for key, text in changes.items():
            _check(declared[key][1], text)
        return changes

    async def _save(self, pairs: Mapping[str, str]) -> None:
        if self._file is None:
            return
        try:
            await asyncio.to_thread(rewrite_configuration, self._file, pairs)
        except OSError as error:
            remark = f"nothing is changed: {self._file.name} cannot be written: {error.strerror or error}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark) from error


def rewrite_configuration(file: Path, pairs: Mapping[str, str]) -> None:
    """Set these keys in a properties file; the rest of it stays. OSError or ConfigurationError when that cannot be."""
    save_with_backup(file, rewrite_properties(file, pairs))


def _refused(key: str) -> RequestRejected:
    return RequestRejected(ResponseCode.NO_PERMISSION, f"option {key} cannot be changed by a request; {REMEDY}")


def _check(option: Option, text: str) -> None:
    if not option.changeable:
        raise _refused(option.key)
    if not text.isprintable():
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"option {option.key}: its value holds a control character")
    try:
        option.parse(text)
    except ConfigurationError as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
