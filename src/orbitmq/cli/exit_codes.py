"""How a failed command ends: one line on standard error and an exit code. Knows no command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from orbitmq.cli.wrapping import with_remedy
from orbitmq.errors import (
    AdminError,
    BadArgument,
    BrokerError,
    ConfigurationError,
    Conflict,
    MessageIllegal,
    NotFound,
    OrbitMQError,
    RemotingError,
    RemotingTimeout,
    StoreLocked,
    cause_of,
)
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.logging import flush
from orbitmq.runtime.printable import printable

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3  # no such topic, group, broker or message
EXIT_REFUSED = 4  # no permission for the account or in the operating system (a read-only directory, a privileged port)
EXIT_UNREACHABLE = 5  # a node did not respond: the result is missing or partial
EXIT_TIMEOUT = 6
EXIT_CONFLICT = 7  # the state is another: already exists, group online, port in use, directory locked
EXIT_CHECK_FAILED = 8  # the check was made and failed
EXIT_CANCELLED = 9  # not confirmed
EXIT_UNCHANGED = 10  # nothing to change, with --fail-if-unchanged
EXIT_INTERRUPTED = 130  # by Ctrl-C; for a daemon by a second one, without a clean stop


# Response codes of orbitmq.wire.codes, which is too heavy to be imported here.
_RESPONSES = {2: EXIT_UNREACHABLE, 14: EXIT_UNREACHABLE, 16: EXIT_REFUSED, 17: EXIT_NOT_FOUND, 22: EXIT_NOT_FOUND,
             26: EXIT_NOT_FOUND, 206: EXIT_CONFLICT, 207: EXIT_TIMEOUT, 208: EXIT_NOT_FOUND}  # fmt: skip
_KINDS: tuple[tuple[type[OrbitMQError], int], ...] = (
    (BadArgument, EXIT_USAGE),
    (MessageIllegal, EXIT_USAGE),
    (NotFound, EXIT_NOT_FOUND),
    (Conflict, EXIT_CONFLICT),
    (RemotingTimeout, EXIT_TIMEOUT),
    (RemotingError, EXIT_UNREACHABLE),
)


@contextmanager
def one_line_errors(command: str, failed: int = EXIT_FAILED, *, ports: str = "--port") -> Iterator[None]:
    """An expected error becomes one line and an exit code, by default `failed`. A bug keeps its traceback. `ports` are
    the flags that choose another port when one is in use.
    """
    try:
        yield
    except OrbitMQError as error:
        fail(command, str(error), exit_code(error) or failed, _remedy(error, ports))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        fail(command, f"{place}{error.strerror or error}", exit_code(error) or failed)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def _remedy(error: OrbitMQError, ports: str) -> str | None:
    if _error_number(error) != errno.EADDRINUSE:
        return error.hint if isinstance(error, AdminError) else None
    return f"stop the process that has it (`ss -ltnp` names it), or choose another port with {ports}; 0 is a free one"


def fail(command: str, text: str, code: int, remedy: str | None = None) -> NoReturn:
    line = with_remedy(f"orbitmq {command}: {translated(text)}", remedy, sys.stderr)
    print(printable(line, lines=True), file=sys.stderr)
    raise SystemExit(code)


def leave(text: str) -> NoReturn:
    """End the process without waiting for its threads, which may hang on a failed disk."""
    flush()
    print(f"orbitmq: {printable(translated(' '.join(text.split())))}", file=sys.stderr, flush=True)
    os._exit(EXIT_FAILED)


ACCESS_REFUSED = "AclException"  # in the remark: brokers have no response code for it


def exit_code(error: BaseException) -> int:
    """0 if the error has no exit code of its own."""
    if isinstance(error, BrokerError):
        if ACCESS_REFUSED in error.remark:
            return EXIT_REFUSED
        return _RESPONSES.get(error.code, EXIT_FAILED)
    for kind, code in _KINDS:
        if isinstance(error, kind):
            return code
    number = _error_number(error)
    if isinstance(error, StoreLocked) or number == errno.EADDRINUSE:
        return EXIT_CONFLICT
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return EXIT_REFUSED
    return EXIT_USAGE if isinstance(error, ConfigurationError) else 0


def _error_number(error: BaseException) -> int | None:
    cause = error if isinstance(error, OSError) else cause_of(error)
    return cause.errno if isinstance(cause, OSError) else None
