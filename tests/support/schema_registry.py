"""A schema registry inside the test: the part of Confluent's REST interface that orbitmq uses, with the status and the
error codes of https://docs.confluent.io/platform/current/schema-registry/develop/api.html.

Whether versions are compatible is decided by `orbitmq.schemas`, only with the latest one, or with all if the level is
transitive.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

from orbitmq.errors import SchemaIllegal
from orbitmq.schemas.compatibility import check, refusals
from orbitmq.schemas.model import Compatibility, Schema, SchemaKind, SchemaVersion
from orbitmq.schemas.protobuf import schema_of_text

TYPE = "application/vnd.schemaregistry.v1+json"


class Refused(Exception):
    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class SchemaRegistry:
    """Started by `with`; `stop` and `start` are an outage, with the same address and the same schemas."""

    def __init__(self, *, authorization: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.authorization = authorization
        """The header that requests must have; empty for none."""
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        """Subject -> the ids of its versions."""
        self.levels: dict[str, str] = {}
        self.level = "BACKWARD"
        self.requests: list[str] = []
        """Method and path of each request."""
        self.answer: tuple[int, bytes] | None = None
        """What every request gets instead."""
        self._tls = tls
        self._port = 0
        self._is_up = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), self._handler())
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._is_up = True
        self._thread.start()

    def stop(self) -> None:
        self._is_up = False
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, subject: str, kind: str, text: str, references: list[dict[str, Any]] | None = None) -> int:
        """Register without a check; the id."""
        content = {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}
        content |= {"references": references} if references else {}
        number = next((one for one, known in self.schemas.items() if known == content), len(self.schemas) + 1)
        self.schemas[number] = content
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    # --------------------------------------------------------------------------------------------------- the interface

    def respond(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> Any:
        match method, [unquote(part) for part in path.strip("/").split("/")]:
            case "GET", ["subjects"]:
                return sorted(self.subjects)
            case "GET", ["schemas", "ids", number]:
                if int(number) not in self.schemas:
                    raise Refused(404, 40403, "Schema not found")
                return self.schemas[int(number)]
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case "GET", ["subjects", subject, "versions", number]:
                return self._version(subject, number)
            case "POST", ["subjects", subject]:
                return self._look_up(subject, body)
            case "POST", ["subjects", subject, "versions"]:
                return {"id": self._register(subject, body)}
            case "POST", ["compatibility", "subjects", subject, "versions", number]:
                known = self._version(subject, number)
                found = self._refusals(subject, body, [known["version"]])
                return {"is_compatible": not found} | ({"messages": found} if "verbose" in query else {})
            case "GET", ["config"]:
                return {"compatibilityLevel": self.level}
            case "GET", ["config", subject]:
                if subject not in self.levels:
                    raise Refused(
                        404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
                    )
                return {"compatibilityLevel": self.levels[subject]}
        raise Refused(404, 404, "HTTP 404 Not Found")

    def _versions(self, subject: str) -> list[int]:
        if subject not in self.subjects:
            raise Refused(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _version(self, subject: str, number: str) -> dict[str, Any]:
        versions = self._versions(subject)
        place = len(versions) if number == "latest" else int(number)
        if not 0 < place <= len(versions):
            raise Refused(404, 40402, "Version not found.")
        return {"subject": subject, "version": place, "id": versions[place - 1], **self.schemas[versions[place - 1]]}

    def _look_up(self, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        schema = self._schema(body)
        for place, number in enumerate(self._versions(subject), 1):
            if self._schema(self.schemas[number]) == schema:
                return self._version(subject, str(place))
        raise Refused(404, 40403, "Schema not found")

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        self._schema(body)
        places = range(1, len(self.subjects.get(subject, [])) + 1)
        level = self.levels.get(subject, self.level)
        found = self._refusals(subject, body, list(places if level.endswith("_TRANSITIVE") else places[-1:]))
        if found:
            text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
            raise Refused(409, 409, text + str(found))
        return self.put(subject, body.get("schemaType", "AVRO"), body["schema"])

    def _refusals(self, subject: str, body: dict[str, Any], places: list[int]) -> list[str]:
        level = self.levels.get(subject, self.level).removesuffix("_TRANSITIVE")
        earlier = [self._schema(self._version(subject, str(place))) for place in places]
        versions = [SchemaVersion(place, schema, 0) for place, schema in zip(places, earlier, strict=True)]
        return list(map(str, refusals(self._schema(body), versions, Compatibility(level.lower()))))

    @staticmethod
    def _schema(content: dict[str, Any]) -> Schema:
        kind, text = content.get("schemaType", "AVRO"), content["schema"]
        try:
            if kind == "PROTOBUF":
                base64.b64decode(text, validate=True)
                schema = schema_of_text(text)
            else:
                schema = Schema(SchemaKind(kind.lower()), json.dumps(json.loads(text)))
            check(schema)
        except (SchemaIllegal, ValueError) as error:
            raise Refused(422, 42201, f"Invalid schema: {error}") from error
        return schema

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._respond()

            def do_POST(self) -> None:
                self._respond()

            def _respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not registry._is_up:  # over a connection from before
                    self.close_connection = True
                    return
                registry.requests.append(f"{self.command} {self.path}")
                if registry.authorization and self.headers.get("Authorization") != registry.authorization:
                    self._send(401, b'{"error_code": 401, "message": "Unauthorized"}')
                elif registry.answer is not None:
                    self._send(*registry.answer)
                else:
                    parts = urlsplit(self.path)
                    try:
                        found = registry.respond(
                            self.command, parts.path, parse_qs(parts.query), json.loads(body or b"{}")
                        )
                    except Refused as error:
                        refusal = {"error_code": error.code, "message": str(error)}
                        self._send(error.status, json.dumps(refusal).encode())
                    else:
                        self._send(200, json.dumps(found).encode())

            def _send(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler
