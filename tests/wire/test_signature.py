"""Signatures are checked over all that was received; `tests/golden` compares them with Java's."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers import GetMaxOffsetHeader
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.signature import ACCESS_KEY, SIGNATURE, Credentials, sign, signature_of, signed_content, signed_fields

OWNER = Credentials("orders-app", "a secret of some length")


@pytest.mark.parametrize("kind", SerializeType)
def test_signature_survives_both_header_forms_and_unknown_fields(kind: SerializeType) -> None:
    command = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3), b"body")
    command.serialize_type = kind
    command.ext |= {"fieldOfTomorrow": "今日", "empty": ""}
    sign(command, OWNER)
    (received,) = FrameDecoder(typed=False).feed(encode_frame(command))
    assert signed_fields(received, OWNER.secret_key.encode()) is not None
    assert signed_fields(received, b"another secret") is None


def test_signature_covers_every_field_and_the_body() -> None:
    command = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3), b"body")
    sign(command, OWNER)
    secret = OWNER.secret_key.encode()
    assert signed_fields(command, secret) is not None
    for changed in (
        Command(ext=command.ext, body=b"bodY"),
        Command(ext=command.ext | {"queueId": "4"}, body=b"body"),
        Command(ext=command.ext | {"more": "1"}, body=b"body"),
        Command(ext={k: v for k, v in command.ext.items() if k != "Signature"}, body=b"body"),
        Command(ext=None, body=b"body"),
    ):
        assert signed_fields(changed, secret) is None


def test_signing_again_replaces_the_old_signature() -> None:
    command = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3))
    sign(command, OWNER)
    first = dict(command.ext)
    sign(command, OWNER)
    assert command.ext == first


def test_query_by_unique_key_is_taken_from_clients_that_sign_the_mark_and_from_those_that_do_not() -> None:
    secret = OWNER.secret_key.encode()
    early = Command(code=RequestCode.QUERY_MESSAGE, ext={"topic": "orders"})
    sign(early, OWNER)
    early.ext["_UNIQUE_KEY_QUERY"] = "true"
    fields = {"topic": "orders", "_UNIQUE_KEY_QUERY": "true", ACCESS_KEY: OWNER.access_key}
    signature = signature_of(signed_content(fields, b""), secret)
    late = Command(code=RequestCode.QUERY_MESSAGE, ext={**fields, SIGNATURE: signature})
    assert signed_fields(early, secret) is not None
    assert signed_fields(late, secret) is not None


def test_a_client_of_5x_may_tell_its_zone_behind_the_signature_and_nothing_else() -> None:
    secret = OWNER.secret_key.encode()
    command = request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader("orders", 3))
    sign(command, OWNER)
    command.ext |= {"__ZONE_NAME": "north", "__ZONE_MODE": "true"}
    assert signed_fields(command, secret) is not None
    command.ext["zone"] = "north"
    assert signed_fields(command, secret) is None


def test_keys_are_ordered_by_utf16_units() -> None:
    assert signed_content({"\uffff": "b", "\U0001f600": "a", "a": "-"}, b"") == b"-ab"


@given(st.dictionaries(st.text(), st.text()), st.binary())
def test_any_fields_can_be_signed_and_checked(ext: dict[str, str], body: bytes) -> None:
    command = Command(ext=ext, body=body)
    sign(command, OWNER)
    assert signed_fields(command, OWNER.secret_key.encode()) is not None
    in_order = sorted(command.ext.items(), key=lambda entry: entry[0].encode("utf-16-be"))
    content = "".join(value for key, value in in_order if key != "Signature").encode() + body
    expected = hmac.new(OWNER.secret_key.encode(), content, hashlib.sha1).digest()
    assert base64.b64decode(command.ext["Signature"]) == expected


@given(st.dictionaries(st.text(), st.text()), st.text(st.characters()))
def test_no_signature_crashes_the_check(ext: dict[str, str], signature: str) -> None:
    assert signed_fields(Command(ext={**ext, "Signature": signature}), b"secret") is None


def test_secret_stands_in_no_representation() -> None:
    shown = repr(Credentials("orders-app", "hush-hush", "token-token"))
    assert "orders-app" in shown
    assert "hush" not in shown
    assert "token-token" not in shown
