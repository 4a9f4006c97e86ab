"""The page speaks the language of the browser or of its user, and every text of a template is one of the catalogue."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.group_verdicts import GroupVerdicts
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.changes import UNRECORDED
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster, Moment
from orbitmq.dashboard.formats import environment
from orbitmq.dashboard.logins import PendingPlan
from orbitmq.dashboard.roles import Role
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import CHINESE, in_language
from tests.support.dashboards import PLACE, seen

TEMPLATES = sorted((Path(__file__).parents[2] / "src" / "orbitmq" / "dashboard" / "templates").glob("*.html"))
NAMES = {"orbitmq", "JSON lines", "CSV", "unique", "MiB"}
"""What is the same in every language."""


def _bare(template: str) -> list[str]:
    """What stands outside of expressions, and in texts of attributes."""
    text = re.sub(r"\{#.*?#\}", "", template, flags=re.DOTALL)
    text = re.sub(r"\{[{%].*?[%}]\}", " ", text, flags=re.DOTALL)
    attributes = re.findall(r'(?:title|aria-label|alt)="([^"]*)"', text)
    text = re.sub(r"<code>.*?</code>|<kbd>.*?</kbd>|<!doctype[^>]*>|<[^>]*>", "\n", text, flags=re.DOTALL)
    return [one.strip() for one in [*text.splitlines(), *attributes] if re.search("[A-Za-z]{2}", one)]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_no_text_of_a_template_is_outside_of_the_catalogue(path: Path) -> None:
    found = [re.sub(r"&\w+;", "", one).strip("– ") for one in _bare(path.read_text(encoding="utf-8"))]
    assert [one for one in found if one and one not in NAMES and not one.startswith("/")] == []


def test_a_bare_text_is_found() -> None:
    found = _bare('<p>Hello {{ name }}</p><b title="Of the page">{{ _("Marked") }}</b>{# A comment #}')
    assert found == ["Hello", "Of the page"]


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_only_texts_of_ours_may_bring_markup(path: Path) -> None:
    """`_` and `ngettext` keep the markup of their first argument, so it is always a text that stands there."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:_|ngettext)\((?!\")[^)]*", text) == []


SENTENCES = re.compile(
    r"\{\{(?=[^}]*\b(?:\w+\.(?:problem|note|refusal|sentence|ending|remedy|action|subject)|(?:one|failure|finding)\.message(?![.\w])"
    r"|wrong|said|why\[)(?!\w))(?![^}]*\| (?:translated|exact))[^}]*\}\}"
)
"""What other rooms have put into words, without a translation. A form or a button sends it back as it is."""
WITHIN = re.compile(r"\b(?:note|why|reason|sentence)=[\w.]+(?! \| translated)(?![\w.])")
"""The same as a value within a text of the page."""


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_what_other_rooms_say_is_translated(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [one for one in SENTENCES.findall(text) if "finding.subject" not in one] == []
    assert WITHIN.findall(text) == []


async def test_a_change_is_planned_and_reported_in_chinese() -> None:
    cluster = DashboardCluster(PLACE, ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)
    dashboard = Dashboard(DashboardSettings([cluster]))
    plan = Plan(
        "deliver 2 dead letters of billing again", [Change(Step("broker-a", "set offset", "T/broker-a/0"), _nothing)]
    )
    key = dashboard._local.keep(PendingPlan(plan, PLACE, "", Role.ADMIN, time.monotonic()))
    page = await seen(dashboard, f"plans/{key}", {"accept-language": "zh-CN"})
    assert page.status == 200
    assert ("设置位点" in page.words, "重新投递 billing 的 2 条死信" in page.words) == (True, True)
    with in_language(CHINESE):
        for text in (UNRECORDED, "wrong name or password", "unexpected error in the dashboard: KeyError('x')"):
            assert re.search("[\u4e00-\u9fff]", translated(text)), text


async def _nothing() -> None:
    """Make no change."""


async def _overview(cluster: DashboardCluster) -> None:
    async def nothing(_: Session) -> Moment:
        return Moment(Result([ClusterView([], [], [], 0)]), {})

    async def no_groups(_: Session) -> GroupVerdicts:
        return GroupVerdicts()

    await cluster.cached("moment", nothing)
    await cluster.cached("verdicts", no_groups)


@pytest.mark.parametrize(
    ("headers", "tag"),
    [
        ({}, "en"),
        ({"accept-language": "de, fr;q=0.5"}, "en"),
        ({"accept-language": "zh-CN, zh;q=0.9, en;q=0.8"}, "zh-CN"),
        ({"accept-language": "zh-CN", "cookie": "orbitmq-language=en"}, "en"),
        ({"accept-language": "en", "cookie": "orbitmq-language=zh_CN"}, "zh-CN"),
        ({"accept-language": "en", "cookie": "orbitmq-language=klingon"}, "en"),
    ],
)
async def test_the_user_s_choice_comes_before_the_browser_s(headers: dict[str, str], tag: str) -> None:
    cluster = DashboardCluster(PLACE, ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)
    await _overview(cluster)
    page = await seen(Dashboard(DashboardSettings([cluster])), "", headers)
    assert f'<html lang="{tag}"' in page.text
    assert page.title == ("概览" if tag == "zh-CN" else "Overview")
    assert ('href="/choose?language=en&amp;' in page.text) is True


async def test_a_value_in_a_translated_text_is_escaped_and_shown_with_marks() -> None:
    with in_language(CHINESE):
        made = environment().from_string('{{ _("Messages of %(topic)s", topic=topic) }}').render(topic="<b>\u202e")
    assert made == "&lt;b&gt;⟨U+202E⟩ 的消息"


def test_a_template_keeps_no_language() -> None:
    made = environment().from_string("{{ none | known }}")
    assert 'title="unknown"' in made.render()
    with in_language(CHINESE):
        assert 'title="未知"' in made.render()
