"""A bad value is refused with its key, the value and what is allowed; files are read as RocketMQ's are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.runtime.options import (
    CONFIGURATION_FILE_MAX,
    Option,
    Options,
    change,
    option,
    read_properties,
    rewrite_properties,
    unknown_keys,
)


@dataclass(frozen=True)
class Pump(Options):
    """Options of something that does not exist."""

    litres: int = option("litresPerHour", 8, "How much it moves.", unit="l/h", minimum=1, maximum=100)
    pressure: float = option("pressure", 1.5, "How hard it pushes.", minimum=0.5)
    running: bool = option("running", True, "Whether it runs.")
    mode: str = option("mode", "GENTLE", "How it runs.", choices=("GENTLE", "STRONG"))
    label: str = option("label", "", "What is written on it.")


def test_values_are_taken_as_their_declared_type() -> None:
    pairs = {"litresPerHour": " 9 ", "pressure": "2", "running": "FALSE", "mode": "STRONG", "label": " tall "}
    assert Pump.parse(pairs) == Pump(litres=9, pressure=2.0, running=False, mode="STRONG", label="tall")
    assert type(Pump.parse(pairs).pressure) is float


def test_keys_of_others_are_not_looked_at_but_can_be_told() -> None:
    pairs = {"litresPerHour": "9", "tlsEnable": "yes"}
    assert Pump.parse(pairs) == Pump(litres=9)
    assert unknown_keys(pairs, Pump) == ["tlsEnable"]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("litresPerHour", "many", "a whole number from 1 to 100"),
        ("litresPerHour", "8.5", "a whole number from 1 to 100"),
        ("litresPerHour", "0", "a whole number from 1 to 100"),
        ("litresPerHour", "101", "a whole number from 1 to 100"),
        ("litresPerHour", "", "a whole number from 1 to 100"),
        ("pressure", "0.4", "a number, at least 0.5"),
        ("pressure", "nan", "a number, at least 0.5"),
        ("running", "yes", "true or false"),
        ("mode", "gentle", "one of GENTLE, STRONG"),
    ],
)
def test_a_refusal_names_key_value_and_what_is_allowed(key: str, value: str, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        Pump.parse({key: value})
    assert f"option {key}: value {value!r}" in str(refusal.value)
    assert allowed in str(refusal.value)


def test_pairs_are_the_effective_values_as_a_file_would_hold_them() -> None:
    pump = Pump().replace(running=False)
    assert pump.pairs() == {
        "litresPerHour": "8",
        "pressure": "1.5",
        "running": "false",
        "mode": "GENTLE",
        "label": "",
    }
    assert Pump.parse(pump.pairs()) == pump


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "pump.conf"
    path.write_text("# a comment\nlabel = M\\u00fcnchen \\\n   tall\nlitresPerHour:9\n! another\n", encoding="utf-8")
    assert read_properties(path) == {"label": "München tall", "litresPerHour": "9"}


@pytest.mark.parametrize("content", [None, b"label=\\u00zz", b"\xff\xfe", b"x" * (CONFIGURATION_FILE_MAX + 1)])
def test_a_file_that_is_no_properties_file_is_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "pump.conf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"pump\.conf"):
        read_properties(path)


def test_options_change_in_place_all_or_none() -> None:
    pump = held = Pump()
    change(pump, {"litresPerHour": "9"})
    assert held.litres == 9
    with pytest.raises(ConfigurationError, match="litresPerHour"):
        change(pump, {"mode": "STRONG", "litresPerHour": "none"})
    assert held == Pump(litres=9)


def test_a_text_must_match_its_pattern_as_a_whole() -> None:
    declared = Option("hours", "04", "When.", pattern=r"\d+(;\d+)*")
    assert declared.parse("04;16") == "04;16"
    for text in ("", "4;", "4;x", "4\n5"):
        with pytest.raises(ConfigurationError, match="hours"):
            declared.parse(text)


def test_a_rewritten_file_keeps_its_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "pump.conf"
    path.write_text("# the pump\nmode = STRONG\n\nlabel=a\\\n  b\n")
    text = rewrite_properties(path, {"mode": "GENTLE", "label": "two\nlines=here"})
    assert text.startswith("# the pump\nmode=GENTLE\n\n")
    path.write_text(text)
    assert read_properties(path) == {"mode": "GENTLE", "label": "two\nlines=here"}


def test_a_secret_is_in_no_error_and_not_shown() -> None:
    declared = Option("password", "", "Opens it.", pattern="[a-z]+", secret=True)
    with pytest.raises(ConfigurationError, match="password") as refused:
        declared.parse("HUSH")
    assert "HUSH" not in str(refused.value)
    assert declared.shown("hush") == "******"
    assert declared.shown("") == ""
