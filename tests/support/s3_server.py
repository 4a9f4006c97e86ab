"""A server of the S3 protocol on this machine: moto's, in a process of its own. Knows nothing of orbitmq.

Run as a program, `python -m tests.support.s3_server PORT`, this is that process. moto looks whether an object exists
and then stores it, which real stores do in one step, so it gets one request at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from pyarrow.fs import S3FileSystem

from tests.support.process import ChildProcess, accepts, free_port

KEY_ID = "orbitmq-test-key"
SECRET = "hush-orbitmq-test"
REGION = "eu-central-1"
REFUSAL = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
NEW = "-NEW"
MARK = "request: "
START_S = 60


class S3Server:
    """Up inside `with`. It takes requests that are signed with KEY_ID, and no others."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._port = free_port()
        self._process: ChildProcess | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead clients here."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def requests(self) -> list[tuple[str, int]]:
        """What was asked, with the status of the answer: `PUT /lake/x`, 200. `PUT-NEW` may replace nothing."""
        assert self._process is not None
        lines = [line for line in self._process.output().splitlines() if line.startswith(MARK)]
        parts = [line.removeprefix(MARK).rsplit(" ", 1) for line in lines]
        return [(request, int(status)) for request, status in parts]

    def make_bucket(self, name: str) -> None:
        address = {"endpoint_override": f"127.0.0.1:{self._port}", "scheme": "http", "region": REGION}
        client = S3FileSystem(access_key=KEY_ID, secret_key=SECRET, allow_bucket_creation=True, **address)
        client.create_dir(name)

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", __name__, str(self._port)]
        self._process = ChildProcess(command, output=self._home / "s3.out", cwd=Path(__file__).parents[2])
        try:
            self._process.wait_for(lambda: accepts(self._port), START_S, "an S3 server")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self._process.stop()


def main(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Quiet(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            status = getattr(code, "value", code)
            command = f"{self.command}{NEW if self.headers.get('If-None-Match') == '*' else ''}"
            sys.stdout.write(f"{MARK}{command} {self.path} {status}\n")  # in one piece: there are several threads
            sys.stdout.flush()

    application = DomainDispatcherApplication(create_backend_app)
    one_at_a_time = threading.Lock()

    def guarded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if f"Credential={KEY_ID}/" not in environ.get("HTTP_AUTHORIZATION", ""):
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [REFUSAL]
        with one_at_a_time:
            return list(application(environ, start_response))

    run_simple("127.0.0.1", port, guarded, threaded=True, request_handler=Quiet)


if __name__ == "__main__":
    main(int(sys.argv[1]))
