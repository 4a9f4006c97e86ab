"""What a daemon tells the service manager that started it: systemd's notification protocol, one datagram a fact.

Without a manager that asks for it nothing happens. Must not know what a daemon is made of.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)

READY = "READY=1"
STOPPING = "STOPPING=1"
SOCKET_VARIABLE = "NOTIFY_SOCKET"


def tell_manager(fact: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Send `fact` to the socket that NOTIFY_SOCKET names, as sd_notify(3) does; whether it was sent.

    A name that begins with `@` is one of Linux' abstract sockets. What cannot be sent is logged: a daemon does not fail
    because nobody listens. Never waits.
    """
    name = environment.get(SOCKET_VARIABLE, "")
    if not name:
        return False
    address = f"\0{name[1:]}" if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as door:
            door.sendto(fact.encode(), address)
    except OSError as error:
        _log.warning("event=manager_not_told fact=%s error=%s", fact, error)
        return False
    return True
