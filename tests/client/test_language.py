"""Tracebacks of an application are in the language of its environment as well; what it compares is English."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
from orbitmq.client import Message
from orbitmq.client.sync import Producer

with Producer("shop", "127.0.0.1:1", send_timeout_ms=300) as producer:
    try:
        producer.send(Message("orders", b""))
    except Exception as error:
        print(error)
    producer.send(Message("orders", b"1"))
"""
ENGLISH, CHINESE = "the body is empty", "没有 NameServer 应答"


@pytest.mark.parametrize(("locale", "is_chinese"), [("zh_CN.UTF-8", True), ("en_US.UTF-8", False), ("C.UTF-8", False)])
def test_a_traceback_has_a_note_in_the_language_of_the_environment(locale: str, is_chinese: bool) -> None:
    environment = {**os.environ, "LC_ALL": locale, "PYTHONIOENCODING": "utf-8"}
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert made.returncode == 1
    assert ENGLISH in made.stdout
    assert "no name server responds: cannot connect to 127.0.0.1:1" in made.stderr
    assert (CHINESE in made.stderr) is is_chinese
