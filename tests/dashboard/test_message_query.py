"""Which messages the fields of a page ask for, how one looks in a list, and files for spreadsheets and for sending."""

from __future__ import annotations

import csv
import io
import json

import pytest

from orbitmq.admin.message_pages import PageRequest
from orbitmq.dashboard.message_query import BEGINNING_BYTES, MessageQuery, files, row, wanted
from orbitmq.dashboard.pages.send import drafted, properties_of
from orbitmq.dashboard.routes import Fields
from orbitmq.errors import BadField
from orbitmq.message.compression import compress
from orbitmq.message.flags import COMPRESSED
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import DELAY

NOW_MS = 1_700_000_000_000


def stored(body: bytes, sys_flag: int = 0, **properties: str) -> MessageExt:
    return MessageExt("Orders", body, properties=properties, sys_flag=sys_flag, offset_msg_id="0A", msg_id="ID")


def test_conditions_come_from_fields() -> None:
    found = wanted(
        Fields("tag=a&key=k&property=city%3DRome%3D1&text=%3Cb%3E&begin=@1h&end=2023-11-14T22:13:20Z"), NOW_MS
    )
    assert (found.tag, found.key, found.property, found.text) == ("a", "k", ("city", "Rome=1"), "<b>")
    assert (found.begin_ms, found.end_ms) == (NOW_MS - 3_600_000, NOW_MS)
    assert wanted(Fields(""), NOW_MS).takes(stored(b""))


@pytest.mark.parametrize(
    ("query", "name"), [("begin=soon", "begin"), ("end=99999999-01-01", "end"), ("property=city", "property")]
)
def test_a_bad_field_is_named(query: str, name: str) -> None:
    with pytest.raises(BadField, match=f"^{name}"):
        wanted(Fields(query), NOW_MS)


def test_a_list_shows_the_beginning_of_a_body() -> None:
    whole = row(stored("短い".encode()))
    assert (whole.beginning, whole.is_text, whole.is_cut) == ("短い", True, False)
    cut = row(stored("長".encode() * BEGINNING_BYTES))
    assert cut.is_cut
    assert set(cut.beginning) == {"長"}
    assert not row(stored(b"\xff\x00")).is_text


def test_a_list_unpacks_no_bomb() -> None:
    bomb = row(stored(compress(bytes(64 << 20)), sys_flag=COMPRESSED))
    assert bomb.beginning.startswith("ZLIB, ")
    assert len(bomb.beginning) < 100
    assert bomb.is_cut


def test_a_spreadsheet_gets_no_formula() -> None:
    evil = stored(b"=cmd|'/c calc'!A0", TAGS="@SUM(1)", KEYS="-1+2", note='=HYPERLINK("x")')
    sheet = files([evil, stored(b'two\nlines "quoted"')], "Orders", "csv")
    assert (sheet.name, sheet.content_type) == ("Orders.csv", "application/octet-stream")
    first, second = csv.DictReader(io.StringIO(sheet.body.decode(), newline=""))
    assert (first["body"], first["tags"], first["keys"]) == ("'=cmd|'/c calc'!A0", "'@SUM(1)", "'-1+2")
    assert not first["properties"].startswith(("=", "+", "-", "@"))
    assert second["body"] == 'two\nlines "quoted"'


def test_json_lines_hold_every_byte() -> None:
    made = files([stored(b"\x00\xff"), stored(b"text\xe2\x80\xa8")], "Orders", "jsonl").body
    bodies = [json.loads(line)["body"] for line in made.split(b"\n") if line]
    assert [(one["form"], one["content"]) for one in bodies] == [("base64", "AP8="), ("text", "text\u2028")]


def test_a_form_becomes_a_message() -> None:
    fields = "topic=T&body=a%0D%0Ab&tags=t&keys=k1++k2&properties=city%3DRome%0D%0A%0D%0Ax%3D1%3D2&delay_level=3"
    message, key = drafted(Fields(f"{fields}&ordering_key=o"))
    assert (message.topic, message.body, message.tags, message.keys, key) == ("T", b"a\nb", "t", "k1 k2", "o")
    assert (message.properties["city"], message.properties["x"], message.properties[DELAY]) == ("Rome", "1=2", "3")
    assert drafted(Fields("topic=T&body=x&expires_after=60"))[0].properties["EXPIRES_AFTER_MS"] == "60000"
    assert "EXPIRES_AFTER_MS" not in drafted(Fields("topic=T&body=x&expires_after=0"))[0].properties
    assert drafted(Fields("topic=T&form=hex&body=00ff"))[0].body == b"\x00\xff"


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("body=x", "topic is missing"),
        ("topic=T", "body is missing"),
        ("topic=T&body=xyz&form=hex", "the body is no hex"),
        ("topic=T&body=x&form=json", "form is 'json'"),
        ("topic=T&body=x&delay_level=-1", "delay_level is '-1'"),
        ("topic=T&body=x&delay_level=1&expires_after=9", "nor with delay_level"),
        ("topic=T&body=x&properties=city", "properties, line 1"),
        ("topic=T&body=x&properties=a%3Db%0AKEYS%3Dc", "properties, line 2: KEYS is reserved for the system"),
        ("topic=T&body=x&properties=a%3Db%02c", "contains a separator"),
    ],
)
def test_a_form_that_is_no_message_is_told(query: str, text: str) -> None:
    with pytest.raises(BadField, match=text):
        drafted(Fields(query))


def test_blank_lines_between_properties_are_passed_over() -> None:
    assert properties_of("\n a = b\n\n") == {"a": " b"}


def test_a_link_to_share_means_the_same_messages_later() -> None:
    query = MessageQuery(
        PageRequest("Orders", wanted(Fields("begin=@1h&tag=a"), NOW_MS)), newest_first=True, rows=50, budget=1000,
        mark=None, fields={"topic": "Orders", "begin": "@1h", "tag": "a"},
    )  # fmt: skip
    assert query.link("messages") == "messages?topic=Orders&tag=a&begin=%401h"
    assert query.lasting_link("messages", "") == "messages?topic=Orders&tag=a&begin=2023-11-14T21%3A13%3A20.000Z"
    assert query.lasting_link("messages", "m").endswith("&mark=m")


def test_a_list_decodes_other_charsets() -> None:
    assert row(stored("订单已付款，金额为三百元。".encode("gbk"))).beginning == "订单已付款，金额为三百元。"


def test_a_list_shows_characters_that_json_has_escaped() -> None:
    assert row(stored(rb'{"item": "\u4e66"}')).beginning == '{"item": "书"}'
    assert row(stored(rb"C:\u4e66")).beginning == r"C:\u4e66", "no JSON"
