"""Changing the text of properties in place gives what reading, changing and writing them would give."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.broker.stored_properties import waits_for_store, with_cluster, with_pair, without_wait
from orbitmq.message.properties import CLUSTER, WAIT, decode_properties, encode_properties

names = st.sampled_from([WAIT, CLUSTER, "TAGS", "XWAIT", "WAIT2", "wait"]) | st.text(max_size=4)
contents = st.sampled_from(["true", "false", "TRUE", "", "WAIT", "c"]) | st.text(max_size=4)
pairs = st.lists(st.tuples(names, contents)).map(lambda found: "\x02".join(f"{n}\x01{v}" for n, v in found))
# Texts as clients write them, with a trailing separator or not, and texts no client would write.
texts = st.tuples(pairs, st.sampled_from(["", "\x02"])).map("".join) | st.text(
    st.sampled_from("WAIT\x01\x02atrue"), max_size=30
)


@given(texts)
@example("WAIT\x01false\x02WAIT\x01true")
@example("WAIT\x01\x02")
@example("XWAIT\x01false")
def test_waiting_is_what_the_property_says_and_yes_without_it(text: str) -> None:
    assert waits_for_store(text) == (decode_properties(text).get(WAIT, "true").lower() == "true")


@given(texts)
@example("TAGS\x01a\x02WAIT\x01true")
@example("WAIT\x01true\x02TAGS\x01a")
@example("WAIT\x01true\x02WAIT\x01true")
@example("a\x01b\x02WAIT\x01true\x02")
@example("XWAIT\x01true\x02WAIT\x01true\x02")
def test_taking_wait_out_leaves_the_rest(text: str) -> None:
    left = decode_properties(text)
    left.pop(WAIT, None)
    assert decode_properties(without_wait(text)) == left


@given(texts.map(decode_properties))
def test_a_text_without_wait_stays_as_it_is(properties: dict[str, str]) -> None:
    properties.pop(WAIT, None)
    text = encode_properties(properties)
    assert without_wait(text) == text


@given(texts, st.text(st.characters(exclude_characters="\x01\x02"), min_size=1))
def test_the_cluster_is_added_and_wins(text: str, cluster: str) -> None:
    assert decode_properties(with_cluster(text, cluster)) == decode_properties(text) | {CLUSTER: cluster}


def test_no_separator_is_doubled() -> None:
    """RocketMQ 5 clients end the text with one, those of 4.9 do not."""
    assert with_pair("", "n", "v") == "n\x01v"
    assert with_pair("a\x01b", "n", "v") == with_pair("a\x01b\x02", "n", "v") == "a\x01b\x02n\x01v"
