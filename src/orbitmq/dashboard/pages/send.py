"""Sending a message by hand: a new one, or one like a stored message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from orbitmq.admin.bodies import SHOWN_BYTES, BodyForm, real_topic, shown
from orbitmq.admin.message_send import Outlet, message_of_json
from orbitmq.dashboard.message_query import one_message
from orbitmq.dashboard.pages.messages import TOPICS_SHOWN, topic_names
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Fields, PageContent, Redirect, does, shows
from orbitmq.errors import BadField, MessageIllegal
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.properties import RESERVED
from orbitmq.runtime.clock import SystemClock

BODY_CHARS_MAX = 1 << 20  # of a body in the form; larger bodies are sent from files, with the command line
FORM_BYTES_MAX = 4 << 20  # size of such a body, URL-encoded, and the properties
PROPERTIES_CHARS_MAX = 64 << 10
FORMS = ("text", "hex", "base64")
DELAY_LEVEL_MAX = 1024  # brokers have 18 by default
AFTER_MAX_S = 999_999_999  # 31 years; for the delivery, the broker has a limit of its own


@shows("send", "send.html", Role.OPERATOR)
async def form(request: DashboardRequest) -> PageContent:
    names = await topic_names(request)
    values: dict[str, Any] = {
        "topic": request.query.text("topic", at_most=255), "tags": "", "keys": "", "properties": "", "body": "",
        "form": "text", "delay_level": 0, "deliver_after": 0, "expires_after": 0, "like": None,
        "too_large": False, "left_out": [],
    }  # fmt: skip
    if like := request.query.text("like"):
        values |= await asyncio.to_thread(_like, await one_message(request.session, like))
    offered = [one.topic for one in names.items][:TOPICS_SHOWN]
    return PageContent({**values, "topics": offered, "forms": FORMS, "chars_max": BODY_CHARS_MAX}, names)


def _like(found: MessageExt) -> dict[str, Any]:
    """The form of a message like this one. A body larger than the shown part is not put into a form."""
    view = shown(found, BodyForm.AUTO, limit=SHOWN_BYTES)
    if view.body is not None and "\r" in view.body.content:  # browsers send every line end as CR LF
        view = shown(found, BodyForm.BASE64, limit=SHOWN_BYTES)
    assert view.body is not None, "it was requested"
    own = {name: value for name, value in view.properties.items() if name not in RESERVED}
    lines = [name for name, value in own.items() if "\n" in name + value or "\r" in name + value or "=" in name]
    is_whole = not (view.body.truncated or view.body.problem)
    return {
        "topic": real_topic(found),
        "tags": view.tags or "",
        "keys": " ".join(view.keys),
        "properties": "\n".join(f"{name}={value}" for name, value in own.items() if name not in lines),
        "left_out": lines,
        "body": view.body.content if is_whole else "",
        "form": view.body.form,
        "like": view,
        "too_large": not is_whole,
    }


@does("send", Role.OPERATOR, says="send a message", body_bytes_max=FORM_BYTES_MAX)
async def send(request: DashboardRequest) -> Redirect:
    message, key = drafted(request.form)
    sent = await Outlet(request.session, SystemClock()).send(message, ordering_key=key)
    where = f"{sent.topic}, {sent.broker_name}, queue {sent.queue_id}, offset {sent.queue_offset}"
    path = f"messages/{quote(sent.topic, safe='')}/{quote(sent.offset_msg_id, safe='')}"
    return Redirect(path, f"{sent.result}: sent message {sent.msg_id} to {where}.")


def drafted(form: Fields) -> tuple[Message, str | None]:
    """The message of the fields and its ordering key. BadField or MessageIllegal names the error."""
    view: Mapping[str, Any] = {
        "topic": form.needed("topic", at_most=255),
        "tags": form.text("tags") or None,
        "keys": form.text("keys").split() or None,
        "properties": properties_of(form.raw("properties", at_most=PROPERTIES_CHARS_MAX)),
        "delayLevel": form.number("delay_level", 0, high=DELAY_LEVEL_MAX),
        "deliverAfterSeconds": form.number("deliver_after", 0, high=AFTER_MAX_S) or None,
        "expiresAfterSeconds": form.number("expires_after", 0, high=AFTER_MAX_S) or None,
        "orderingKey": form.text("ordering_key") or None,
        "body": {
            "form": form.choice("form", FORMS, "text"),
            "content": form.raw("body", at_most=BODY_CHARS_MAX),
        },
    }
    if not view["body"]["content"]:
        raise BadField("body is missing: RocketMQ does not accept empty messages")
    try:
        return message_of_json(view)
    except MessageIllegal as error:
        raise BadField(str(error)) from error


def properties_of(text: str) -> dict[str, str]:
    """`NAME=VALUE` per line. BadField names a line without one, or a name that is reserved for the system."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip() or not value.strip():
            raise BadField(f"properties, line {number}: use NAME=VALUE")
        if name.strip() in RESERVED:
            raise BadField(f"properties, line {number}: {name.strip()} is reserved for the system")
        found[name.strip()] = value
    return found
