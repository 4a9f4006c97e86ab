"""How a command ends that cannot do its work: one line on standard error and an exit code. Knows no command."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from orbitmq.errors import ConfigurationError, OrbitMQError, StoreLocked

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REFUSED = 4  # the operating system does not let us: an unwritable directory, a privileged port
EXIT_CONFLICT = 7  # somebody else has it: a port in use, a locked directory
EXIT_INTERRUPTED = 130  # by a second Ctrl-C, without a clean stop


@contextmanager
def one_line_errors(command: str, failed: int = EXIT_FAILED) -> Iterator[None]:
    """What the operator or the machine got wrong is one line and an exit code, `failed` when no other says more; a bug
    keeps its stack.
    """
    try:
        yield
    except OrbitMQError as error:
        fail(command, str(error), exit_code(error) or failed)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        fail(command, f"{place}{error.strerror or error}", exit_code(error) or failed)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None


def fail(command: str, text: str, code: int) -> NoReturn:
    print(f"orbitmq {command}: {' '.join(text.split())}", file=sys.stderr)
    raise SystemExit(code)


def leave(text: str) -> NoReturn:
    """End the process without waiting for its threads: they wait for a disk that does not answer."""
    print(f"orbitmq: {' '.join(text.split())}", file=sys.stderr, flush=True)
    os._exit(EXIT_FAILED)


def exit_code(error: BaseException) -> int:
    """0 for an error that has no code of its own."""
    cause = error if isinstance(error, OSError) else error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if isinstance(error, StoreLocked) or number == errno.EADDRINUSE:
        return EXIT_CONFLICT
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return EXIT_REFUSED
    return EXIT_USAGE if isinstance(error, ConfigurationError) else 0
