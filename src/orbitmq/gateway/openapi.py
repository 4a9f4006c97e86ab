"""The OpenAPI document of the table of operations. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from orbitmq import __version__
from orbitmq.gateway import bodies, problems
from orbitmq.gateway.table import EVENTS, JSON, TABLE, Operation

VERSION: Final = "3.1.0"
_REFERENCE: Final = "#/components/schemas/{name}"
_SECURITY: Sequence[Mapping[str, list[str]]] = ({"account": []}, {})
"""Brokers without access control need no account."""
_LAST_EVENT_ID: Mapping[str, Any] = {
    "name": "Last-Event-ID", "in": "header", "required": False,
    "description": "The id of the last event that was received: the stream goes on after it.",
    "schema": {
        "type": "string",
        "pattern": "^[A-Za-z0-9_.-]{1,255}:[0-9]{1,9}:[0-9]{1,18}(,[A-Za-z0-9_.-]{1,255}:[0-9]{1,9}:[0-9]{1,18})*$",
    },
}  # fmt: skip
_TEXT_PAGES: Sequence[tuple[str, str, str]] = (
    ("/metrics", "metrics", "Metrics of the gateway for Prometheus."),
    ("/openapi.json", "document", "This document."),
)


def document() -> dict[str, Any]:
    """The document, as `/openapi.json` serves it."""
    shapes = [shape for one in TABLE for shape in (one.body, one.response) if shape is not None]
    _, components = msgspec.json.schema_components(
        [*shapes, bodies.Message, bodies.Delivery, bodies.Problem, bodies.Health], ref_template=_REFERENCE
    )
    return {
        "openapi": VERSION,
        "info": {
            "title": "orbitmq gateway",
            "version": __version__,
            "description": "Messages of orbitmq and Apache RocketMQ over HTTP and JSON.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {**{one.path: {one.method.lower(): _operation(one)} for one in TABLE}, **_pages()},
        "components": {
            "schemas": components,
            "securitySchemes": {
                "account": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "Access key and secret of an account of the brokers.",
                }
            },
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    parameters = [*_parameters(one.path_shape, "path"), *_parameters(one.query, "query")]
    if one.response is None:
        parameters.append(dict(_LAST_EVENT_ID))
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.text.partition(". ")[0].removesuffix(".") + ".",
        "description": one.text,
        "parameters": parameters,
        "security": list(_SECURITY),
        "responses": {"200": _success(one), **_problems(one.problems)},
    }
    if one.body is not None:
        found["requestBody"] = {"required": True, "content": {JSON: {"schema": _reference(one.body)}}}
    return found


def _parameters(shape: type[bodies.Shape], place: str) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([shape], ref_template=_REFERENCE)
    schema = components[shape.__name__]
    found = []
    for name, value in schema["properties"].items():
        inner = dict(value)
        text = inner.pop("description", None)
        parameter = {"name": name, "in": place, "required": name in schema.get("required", ()), "schema": inner}
        found.append(parameter if text is None else {**parameter, "description": text})
    return found


def _reference(shape: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([shape], ref_template=_REFERENCE)
    return schema


def _success(one: Operation) -> dict[str, Any]:
    if one.response is None:
        text = "Events `message`, whose data is a message as JSON, and `problem`."
        return {"description": text, "content": {EVENTS: {"schema": _event_schema(one.event)}}}
    text = (one.response.__doc__ or "").partition("\n")[0]
    return {"description": text, "content": {JSON: {"schema": _reference(one.response)}}}


def _event_schema(message: type[bodies.Message]) -> dict[str, Any]:
    """Of each event."""
    data = {"anyOf": [_reference(message), _reference(bodies.Problem)]}
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": ["message", "problem"]},
            "data": {"type": "string", "contentMediaType": JSON, "contentSchema": data},
            "retry": {"type": "integer"},
        },
    }


def _problems(statuses: Sequence[int]) -> dict[str, Any]:
    content = {problems.CONTENT_TYPE: {"schema": _reference(bodies.Problem)}}
    return {str(one): {"description": problems.KINDS[one].title + ".", "content": content} for one in statuses}


def _pages() -> dict[str, Any]:
    health = {"description": "It serves.", "content": {JSON: {"schema": _reference(bodies.Health)}}}
    found: dict[str, Any] = {
        "/healthz": {"get": _page("health", "Whether the process serves.", {"200": health})},
        "/readyz": {
            "get": _page("readiness", "Whether it reaches brokers.", {"200": health, **_problems((500, 503, 504))})
        },
    }
    for path, name, text in _TEXT_PAGES:
        kind = {"text/plain": {"schema": {"type": "string"}}} if path == "/metrics" else {JSON: {"schema": {}}}
        found[path] = {"get": _page(name, text, {"200": {"description": text, "content": kind}})}
    return found


def _page(name: str, text: str, responses: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name, "summary": text, "security": [],
        "responses": {**responses, **_problems((421,))},
    }  # fmt: skip
