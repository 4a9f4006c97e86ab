"""The pages of public names show what a reader looks for, and their links lead there."""

from __future__ import annotations

import re

import pytest

from reference.api import MODULES, api_page


@pytest.mark.parametrize("page", MODULES)
def test_every_link_of_a_page_leads_to_one_heading(page: str) -> None:
    text = api_page(page)
    headings = [re.sub(r"[^\w-]", "", title.lower()) for title in re.findall(r"^#{4} (.+)$", text, re.MULTILINE)]
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(headings) == len(set(headings))
    assert links
    assert not [link for link in links if link not in headings]


def test_calls_are_shown_as_they_are_written() -> None:
    text = api_page("client-api.md")
    assert (
        "\nasync poll(timeout: float | None = None, *, max_messages: int | None = None) -> list[MessageExt]\n" in text
    )
    assert "\nqueue: MessageQueue | None = None,\n" in text.replace("    ", "")
    transaction = text.split("##### TransactionProducer.send_in_transaction\n")[1].split("#####")[0]
    assert transaction.count("async send_in_transaction(") == 2, "one for each form"
    assert "argument: A_contra" in transaction


def test_members_are_shown_with_type_and_meaning() -> None:
    text = api_page("client-api.md")
    assert "| `queue_offset` | `int` | Queue offset; of a batch that of its first message. |" in text
    assert "| `code` | `int` | The response code" in text, "what a constructor sets has the type of its parameter"
    assert "| `SEND_OK` | stored as safely as the broker is configured to |" in text
    assert "| `response_code`" not in text, "is for servers"


def test_a_synchronous_method_says_what_it_waits_for() -> None:
    section = api_page("client-api.md").split("#### sync.Producer\n")[1].split("\n#### ")[0]
    assert "| `send` | waits for `Producer.send` |" in section
    assert "| `request_async` | starts `Producer.request_async` |" in api_page("client-api.md")
    assert "##### sync.Producer.send_async" in section, "whose future is one for threads"
