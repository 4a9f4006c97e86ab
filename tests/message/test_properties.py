"""The text of properties: written, read, and read as RocketMQ reads it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.properties import EncodedProperties, decode_properties, encode_properties, find_property

PLAIN = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
MESSY = st.lists(st.sampled_from(["\x01", "\x02", "TAGS", "KEYS", "a", "é"])).map("".join)


@given(st.dictionaries(PLAIN, PLAIN))
def test_round_trip(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


@given(MESSY)
def test_finding_one_property_agrees_with_decoding_all(text: str) -> None:
    everything = decode_properties(text)
    for name in ("TAGS", "KEYS", "a", "é"):
        found = find_property(text.encode(), name.encode() + b"\x01")
        assert (found.decode() if found is not None else None) == everything.get(name)
        assert EncodedProperties(text.encode()).get(name) == everything.get(name)


def test_last_of_equal_names_wins() -> None:
    assert decode_properties("a\x011\x02a\x012\x02") == {"a": "2"}
    assert find_property(b"WAIT\x01false\x02WAIT\x01true", b"WAIT\x01") == b"true"
