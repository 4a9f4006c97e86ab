"""The authorization header: forms that clients write, others, and that nothing shows a secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StatusError
from orbitmq.proxy.signature import HEADER_LENGTH_MAX, is_signed_with, parse_authorization, signature_of
from orbitmq.wire.v2.enums import Code

SECRET = b"12345678"
DATE = "20260701T120000Z"
DIGEST = "15c30c8b1f5a8d2b4f8b8b3a2a8a3a2a"  # not the right one


def header(credential: str, digest: str) -> str:
    return f"MQv2-HMAC-SHA1 Credential={credential}, SignedHeaders=x-mq-date-time, Signature={digest}"


def test_the_signature_is_the_hmac_of_the_date() -> None:
    # RFC 2202, test case 2: HMAC-SHA1 of this text with the key "Jefe".
    assert signature_of("what do ya want for nothing?", b"Jefe") == "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"


@pytest.mark.parametrize("credential", ["reader", "reader/region/service"])
@pytest.mark.parametrize("write", [str.upper, str.lower])
def test_clients_sign_in_either_case_and_may_name_a_region(credential: str, write: object) -> None:
    assert callable(write)
    authorization = parse_authorization(header(credential, write(signature_of(DATE, SECRET))))
    assert authorization.access_key == "reader"
    assert is_signed_with(authorization, DATE, SECRET)
    assert not is_signed_with(authorization, DATE, b"other")
    assert not is_signed_with(authorization, DATE + " ", SECRET)


BAD = [
    "",
    "Basic YTpi",
    "MQv2-HMAC-SHA1",
    "MQv2-HMAC-SHA1 ",
    header("", DIGEST),
    header("/region", DIGEST),
    header("reader", ""),
    header("reader", DIGEST) + " " * HEADER_LENGTH_MAX,
    "MQv2-HMAC-SHA1 Credential=a",
    "MQv2-HMAC-SHA1 Signature=" + DIGEST,
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_other_headers_are_refused(text: str) -> None:
    with pytest.raises(StatusError) as raised:
        parse_authorization(text)
    assert raised.value.code == Code.UNAUTHORIZED
    assert len(raised.value.text) < 200


@given(st.text())
def test_any_text_is_refused_or_does_not_match(text: str) -> None:
    try:
        authorization = parse_authorization(f"MQv2-HMAC-SHA1 {text}")
    except StatusError:
        return
    assert not is_signed_with(authorization, text, SECRET)


def test_no_text_shows_a_signature() -> None:
    assert DIGEST not in repr(parse_authorization(header("reader", DIGEST)))
    with pytest.raises(StatusError) as raised:
        parse_authorization(header("", DIGEST))
    assert DIGEST not in raised.value.text
