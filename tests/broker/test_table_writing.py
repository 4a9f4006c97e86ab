"""Texts of whole tables are written beside the event loop: those of ten thousand topics take it a while."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.registered import RegisteredTopics
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.wire import table_texts
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import client_of, made_broker, running


async def test_texts_of_whole_tables_are_written_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: list[threading.Thread] = []
    entries = table_texts.TableText._entries

    def noted(text: table_texts.TableText[Any]) -> Any:
        writers.append(threading.current_thread())
        return entries(text)

    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        monkeypatch.setattr(table_texts.TableText, "_entries", noted)
        broker.topics.put(TopicConfig("Orders"))
        await broker.topics.file.flush()
        body = encode(SubscriptionGroup("g"))
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0
        for code in (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
            assert (await client.ask(code)).code == 0
        assert b"Orders" in await RegisteredTopics(broker.topics, broker.options).body(None)
        assert len(writers) == 5
        assert threading.current_thread() not in writers
