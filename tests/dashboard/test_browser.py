"""What people do on the page, in Debian's Chromium, on a live shop with traffic: each page's main task.

A page is examined as it is found (both widths, both schemes, axe-core, focus, width), then its task is done. A page
that is added to the table of pages fails here until somebody has walked it, and a form until a walk has sent it. With
ORBITMQ_SCREENSHOTS=1 the pictures of the documentation are made.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Download, expect

from orbitmq.client import Message
from orbitmq.client.sync import SimpleConsumer
from orbitmq.dashboard.routes import PageRoute
from supply import texts
from tests.support.browsers import DESKTOP, PHONE, Window, chromium
from tests.support.dashboards import OrbitDashboard
from tests.support.process import wait_until
from tests.support.shop import ARCHIVE, BILLING, BROKERS, CHECKOUT, MAILER, MAILS, ORDERS, PAYMENTS, SECRET, Shop
from tests.support.surface import FORMS, LOOKS, address

PATIENCE_S = 60
FILES = {
    "config/export", "dead-letters/{group}/export", "messages/export", "messages/{topic}/{id}/body",
    "messages/{topic}/{id}/unfolded", "tail/rows",
}  # fmt: skip
"""Pages that are saved, or a part of another one."""


class Walk(NamedTuple):
    """What is done on a page, and the forms that are sent on the way."""

    task: Callable[[Walker], None]
    forms: tuple[str, ...]


WALKS: dict[str, Walk] = {}
"""By the path of the page it begins on."""


def walk(path: str, *forms: str) -> Callable[[Callable[[Walker], None]], Callable[[Walker], None]]:
    def register(task: Callable[[Walker], None]) -> Callable[[Walker], None]:
        WALKS[path] = Walk(task, forms)
        return task

    return register


class Walker(Window):
    """A person at work in the shop."""

    def __init__(self, browser: Browser, dashboard: OrbitDashboard, shop: Shop, **options: Any) -> None:
        super().__init__(browser, dashboard.url, **options)
        self.shop = shop

    def sees(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("#content")).to_contain_text(text, timeout=PATIENCE_S * 1000)

    def is_at(self, heading: str | re.Pattern[str]) -> None:
        expect(self.page.locator("h1")).to_contain_text(heading, timeout=PATIENCE_S * 1000)

    def follows(self, link: str) -> None:
        self.page.locator("#content").get_by_role("link", name=link, exact=True).first.click()

    def drawn(self, path: str, charts: int) -> bool:
        """Whether this page has so many charts, with an axis and a legend each."""
        self.open(path)
        self.page.wait_for_load_state("networkidle")
        return self.page.locator(".chart canvas").count() == self.page.locator(".chart .u-legend").count() == charts

    def fills(self, label: str, value: str, *, form: str = "#content") -> None:
        self.page.locator(form).get_by_label(label).first.fill(value)

    def clicks(self, button: str, *, form: str = "#content") -> None:
        self.page.locator(form).get_by_role("button", name=button).first.click()

    def confirms(self, typed: str | None = None) -> None:
        """The plan that is shown; a name has to be typed where something is destroyed."""
        self.is_at("Confirm this change")
        if typed is not None:
            self.page.get_by_label("Type").fill(typed)
        self.clicks("Confirm")
        expect(self.page.get_by_role("link", name="Back")).to_be_visible(timeout=PATIENCE_S * 1000)
        assert not self.page.locator(".outcome-failed, .outcome-notApplied").count(), self.page.inner_text("#content")

    def leaves(self) -> None:
        """The plan that is shown, as it is."""
        self.is_at("Confirm this change")
        self.follows("Cancel")

    def saves(self, link: str) -> str:
        """The text of the file behind a link or a button."""
        with self.page.expect_download() as waiting:
            self.page.locator("#content").get_by_text(link, exact=True).first.click()
        found: Download = waiting.value
        return Path(found.path()).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop() as running:
        yield running


@pytest.fixture(scope="module")
def dashboard(shop: Shop) -> Iterator[OrbitDashboard]:
    with OrbitDashboard(shop.name_server, "--sample", 1) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def walker(browser: Browser, dashboard: OrbitDashboard, shop: Shop) -> Walker:
    return Walker(browser, dashboard, shop)


@pytest.mark.parametrize("page", LOOKS, ids=lambda page: page.path or "overview")
def test_a_person_gets_done_what_the_page_is_for(page: PageRoute, walker: Walker) -> None:
    assert page.path in WALKS, "nobody has walked this page"
    found = WALKS[page.path]
    if page.path not in FILES:
        walker.open(address(page, walker.shop))
        walker.examine()
    found.task(walker)
    walker.close()
    missing = [form for form in found.forms if not any(_is_of(form, path) for path in walker.posted)]
    assert not missing, f"{missing} not sent, but {walker.posted}"


def _is_of(form: str, path: str) -> bool:
    return re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", form), path) is not None


CATALOGUE = [one for path in texts.catalogues() for one in texts.catalogue(path) if one.id and one.id != one.string]


@pytest.mark.parametrize(
    "page", [page for page in LOOKS if page.path not in FILES], ids=lambda page: page.path or "overview"
)
def test_every_page_is_in_chinese_for_who_reads_it(
    page: PageRoute, browser: Browser, dashboard: OrbitDashboard, shop: Shop
) -> None:
    reader = Walker(browser, dashboard, shop, locale="zh-CN")
    reader.open(address(page, shop))
    assert reader.page.evaluate("document.documentElement.lang") == "zh-CN"
    reader.examine()
    english = [re.compile(_form(one)) for message in CATALOGUE for one in _forms(message.id) if _is_told(one)]
    left = [text for text in reader.texts() if any(one.fullmatch(text) for one in english)]
    assert left == [], "texts of the catalogue that are English all the same"
    reader.close()


def _forms(text: str | tuple[str, ...]) -> tuple[str, ...]:
    return (text,) if isinstance(text, str) else text


def _is_told(text: str) -> bool:
    """Whether there is anything but values and marks, which any text would fit."""
    return re.search("[A-Za-z]", re.sub(r"%\(\w+\)s|<[^>]*>", "", text)) is not None


def _form(text: str) -> str:
    """Its values may be anything but Chinese."""
    plain = re.sub(r"<[^>]*>", "", text).replace("%%", "%")
    return "[^\u4e00-\u9fff]*".join(re.escape(part) for part in re.split(r"%\(\w+\)s", plain))


def test_language_and_colours_are_chosen_on_the_page(walker: Walker) -> None:
    walker.open("topics?type=every")
    walker.page.get_by_role("link", name="简体中文").click()
    expect(walker.page.locator("h1")).to_have_text("主题")
    assert "type=every" in walker.page.url
    walker.page.get_by_role("link", name="深色").click()
    expect(walker.page.locator("html")).to_have_attribute("data-theme", "dark")
    assert walker.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 23, 29)"
    walker.page.get_by_role("link", name="English").click()
    expect(walker.page.locator("h1")).to_have_text("Topics")
    walker.close()


def test_every_form_is_sent_by_a_walk() -> None:
    sent = {form for walk in WALKS.values() for form in walk.forms}
    assert sorted(page.path for page in FORMS if page.path not in sent) == []


# -------------------------------------------------------------------------------------------------- what is looked at


@walk("")
def overview(walker: Walker) -> None:
    wait_until(lambda: walker.drawn("", 3), PATIENCE_S, "samples of everything")
    walker.page.clock.install()
    walker.open("")
    walker.sees("DefaultCluster")
    walker.sees("Groups that need attention")
    walker.page.get_by_role("row", name=ARCHIVE).first.wait_for()
    with walker.page.expect_response(lambda answer: answer.request.headers.get("hx-request") == "true"):
        walker.page.clock.run_for(11_000)  # the content comes anew by itself
    worst = walker.page.get_by_role("region", name="Groups that need attention").locator("tbody tr").first
    expect(worst).to_contain_text(re.compile(rf"^\s*({MAILER}|{ARCHIVE})\s+critical "))
    expect(walker.page.locator(".findings a[href$='/why']").first).to_be_visible()  # what to do next
    walker.page.keyboard.press("Control+Home")
    walker.page.get_by_role("link", name="Skip to the content").focus()
    walker.page.keyboard.press("Enter")
    assert walker.page.evaluate("document.activeElement.id") == "content"
    walker.follows(BROKERS[0])
    walker.is_at(BROKERS[0])


@walk("groups")
def groups(walker: Walker) -> None:
    walker.page.get_by_label("Name contains").fill("arch")
    walker.page.keyboard.press("Enter")
    walker.sees(ARCHIVE)
    assert BILLING not in walker.page.inner_text("tbody")
    walker.follows("Lag")
    walker.follows(ARCHIVE)
    walker.is_at(ARCHIVE)
    walker.follows("Why is nothing consumed?")
    walker.is_at("why is nothing consumed?")


@walk("new-group", "new-group", "groups/{group}/delete")
def new_group(walker: Walker) -> None:
    walker.fills("Name", "returns")
    walker.clicks("Preview")
    walker.confirms()
    walker.open("groups/returns")
    walker.page.get_by_text("Delete the group").click()
    walker.clicks("Preview", form="form[action$='/delete']")
    walker.confirms("returns")


@walk("groups/{group}", "groups/{group}/change")
def group(walker: Walker) -> None:
    walker.sees("Queues")
    drawn = walker.page.get_by_role("img", name=re.compile(r"^lag of a queue: \d+ to \d+, mean "))
    box = drawn.first.bounding_box()
    assert box is not None
    assert box["width"] > 100
    walker.page.get_by_text("Change the configuration").click()
    walker.page.locator(
        "form[action$='/change'] input[type=number], form[action$='/change'] input[inputmode]"
    ).first.fill("3")
    walker.clicks("Preview changes")
    walker.confirms()


@walk("groups/{group}/why")
def why(walker: Walker) -> None:
    walker.sees("given up")
    walker.follows("Dead letters")
    walker.is_at("Dead letters")


@walk("groups/{group}/in-flight")
def in_flight(walker: Walker) -> None:
    walker.sees("No message is in flight")
    with SimpleConsumer("pickers", walker.shop.name_server) as consumer:
        consumer.subscribe(ORDERS)
        assert consumer.receive(2, invisible=3600, timeout=PATIENCE_S)
    walker.open("groups/pickers/in-flight")
    walker.sees(re.compile(r"in (1 h|59 min)"))
    walker.page.get_by_role("link", name="message at offset").first.click()
    walker.is_at(f"Messages of {ORDERS}")
    walker.page.locator("tbody a.mono").first.wait_for()


@walk(
    "groups/{group}/offsets",
    "groups/{group}/offsets/reset",
    "groups/{group}/offsets/skip",
    "groups/{group}/offsets/clone",
)
def offsets(walker: Walker) -> None:
    walker.open(f"groups/{ARCHIVE}/offsets")
    form = "form[action$='/clone']"
    walker.fills("Destination group", "archive-2", form=form)
    walker.clicks("Preview", form=form)
    walker.confirms()
    walker.open("groups/archive-2/offsets")
    form = "form[action$='/reset']"
    walker.page.locator(form).get_by_label("The earliest message").check()
    walker.clicks("Preview", form=form)
    walker.confirms()
    walker.open("groups/archive-2/offsets")
    walker.clicks("Preview", form="form[action$='/skip']")
    walker.confirms()


@walk("clients")
def clients(walker: Walker) -> None:
    walker.sees(walker.shop.client_id)
    walker.fills("Client, address or group contains", BILLING)
    walker.clicks("Show")
    walker.follows(walker.shop.client_id)
    walker.is_at(walker.shop.client_id)


@walk("clients/{client:path}")
def client(walker: Walker) -> None:
    walker.sees(f"Queues in {BILLING}")
    walker.follows("Stacks")
    walker.sees(re.compile("thread|stack", re.IGNORECASE))


@walk("stacks/{client:path}")
def stack(walker: Walker) -> None:
    walker.sees(walker.shop.client_id)
    walker.sees(re.compile(r"\.py"))


@walk("brokers")
def brokers(walker: Walker) -> None:
    for name in BROKERS:
        walker.sees(name)
    walker.page.get_by_role("region", name="Brokers").focus()  # it is scrolled with keys on a phone
    walker.page.keyboard.press("ArrowRight")
    walker.follows(BROKERS[1])
    walker.is_at(BROKERS[1])


@walk("brokers/{broker}", "brokers/{broker}/writing", "brokers/{broker}/cleaning")
def broker(walker: Walker) -> None:
    here = walker.page.url
    walker.clicks("Forbid writing")
    walker.leaves()
    walker.clicks("Preview")
    walker.confirms()
    walker.page.goto(here)
    walker.fills("Key contains", "flush")
    walker.clicks("Filter")
    walker.sees("flushDiskType")


@walk("brokers/{broker}/consumption")
def consumption(walker: Walker) -> None:
    walker.sees(ARCHIVE)
    walker.follows("Lag")
    walker.follows(ARCHIVE)
    walker.is_at(ARCHIVE)


@walk("brokers/{broker}/settings", "brokers/{broker}/settings/change")
def settings(walker: Walker) -> None:
    walker.fills("Key contains", "fileReservedTime")
    walker.clicks("Filter")
    walker.fills("fileReservedTime", "96", form="form[method=post]")
    walker.clicks("Preview changes")
    walker.sees("96")
    walker.confirms()


@walk("topics")
def topics(walker: Walker) -> None:
    walker.sees(ORDERS)
    walker.fills("Name contains", ORDERS)
    walker.clicks("Show")
    walker.follows(ORDERS)
    walker.is_at(ORDERS)


@walk("topics/{topic}", "topics/{topic}/alter", "topics/{topic}/order")
def topic(walker: Walker) -> None:
    walker.sees(BILLING)
    wait_until(lambda: walker.drawn(f"topics/{ORDERS}", 2), PATIENCE_S, "samples of the topic")
    legend = walker.page.locator(".u-legend").nth(1)
    expect(legend).to_contain_text(re.compile(rf"{ARCHIVE}\s*\d+ messages"))  # the latest values, without a mouse
    walker.page.locator("form[action$='/alter']").get_by_label("Write queues").fill("6")
    walker.page.locator("form[action$='/alter']").get_by_label("Read queues").fill("6")
    walker.clicks("Preview changes", form="form[action$='/alter']")
    walker.confirms()
    walker.follows("Back")
    walker.fills("Brokers and queues", "broker-a:4;broker-b:4", form="form[action$='/order']")
    walker.clicks("Preview changes", form="form[action$='/order']")
    walker.leaves()


@walk("new-topic", "new-topic", "topics/{topic}/delete")
def new_topic(walker: Walker) -> None:
    walker.fills("Name", "Returns")
    walker.clicks("Preview")
    walker.confirms()
    walker.open("topics/Returns")
    walker.clicks("Preview", form="form[action$='/delete']")
    walker.confirms("Returns")


@walk("nameservers", "nameservers/settings", "nameservers/pairs", "nameservers/pairs/remove")
def name_servers(walker: Walker) -> None:
    here = walker.page.url
    form = "form[action$='/settings']"
    walker.follows("change")
    walker.clicks("Preview changes", form=form)
    walker.sees("Nothing to do: everything is as requested already.")
    walker.page.goto(here)
    form = "form[action$='/pairs']"
    walker.fills("Put", "Mails", form=form)
    walker.fills("as", "broker-a:4", form=form)
    walker.clicks("Preview changes", form=form)
    walker.confirms()
    walker.page.goto(here)
    walker.clicks("remove Mails")
    walker.confirms()


@walk("access", "access/white-list")
def access(walker: Walker) -> None:
    walker.sees("storefront")
    walker.fills("Replace the white list", "127.0.0.1\n10.1.2.*")
    walker.clicks("Preview changes")
    walker.confirms()


@walk("account", "account", "account/delete")
def account(walker: Walker) -> None:
    walker.fills("Access key", "warehouse")
    walker.fills("Secret", SECRET)
    walker.fills("Topics, one per line", f"{ORDERS}=SUB")
    walker.clicks("Preview changes")
    assert SECRET not in walker.page.content()
    walker.confirms()
    assert SECRET not in walker.page.content()
    walker.open("account?key=warehouse")
    assert SECRET not in walker.page.content()
    walker.clicks("Delete the account")
    walker.confirms("warehouse")


@walk("config", "config/apply")
def config(walker: Walker) -> None:
    told = walker.saves("Export")
    assert ORDERS in told
    assert SECRET not in told
    walker.fills("Apply this document", told)
    walker.clicks("Preview changes")
    walker.sees("Nothing to do: everything is as requested already.")


@walk("audit")
def audit(walker: Walker) -> None:
    walker.open("send?topic=" + MAILS)
    walker.fills("Body", "recorded", form="form[action$='/send']")
    walker.clicks("Send")
    walker.sees("SEND_OK")
    walker.open("audit")
    walker.sees("send a message")


# ----------------------------------------------------------------------------------------------------------- messages


@walk("find")
def find(walker: Walker) -> None:
    walker.sees("consumed by billing")
    walker.page.get_by_label("Where is my message?").fill("order-7")
    walker.page.keyboard.press("Enter")
    walker.is_at("Where is my message?")
    walker.sees("order-7")
    expect(walker.page.locator("#content .json")).to_contain_text('"order": 7')
    walker.follows("Message")
    walker.is_at("Message")


@walk("messages")
def messages(walker: Walker) -> None:
    walker.page.get_by_label("Key", exact=True).fill("order-12")
    walker.clicks("Show")
    walker.sees("order-12")
    button = walker.page.get_by_role("button", name="body of ")
    button.click()
    tree = walker.page.locator("td.unfolded .json")
    expect(tree).to_contain_text('"customer": "c5"')
    walker.examine()  # as it is with an unfolded body
    walker.page.locator("tbody a").first.focus()
    walker.page.keyboard.press("o")
    expect(tree).to_have_count(0)
    expect(button).to_have_attribute("aria-expanded", "false")
    walker.page.locator("tbody a").first.click()
    walker.is_at("Message")


@walk("messages/{topic}/{id}")
def message(walker: Walker) -> None:
    walker.sees('"order": 0')
    walker.page.get_by_label("Show as").select_option("hex")
    walker.clicks("Show")
    walker.sees("7b226f72646572")
    walker.follows("Send a similar message")
    expect(walker.page.locator("#body")).to_have_value(re.compile('"order": 0'))


@walk("messages/{topic}/{id}/again", "messages/{topic}/{id}/again")
def again(walker: Walker) -> None:
    billed = walker.shop.billed
    walker.fills("Group", BILLING)
    walker.clicks("Show members")
    walker.clicks("Deliver to this member")
    walker.confirms()
    wait_until(lambda: walker.shop.billed > billed, PATIENCE_S, "the order is billed once more")


@walk("send", "send")
def send(walker: Walker) -> None:
    billed = walker.shop.billed
    form = "form[action$='/send']"
    walker.fills("Topic", ORDERS, form=form)
    walker.page.locator("#body").fill('{"order": "by hand"}')
    walker.fills("Keys, separated", "by-hand", form=form)
    walker.clicks("Send")
    walker.sees("to Orders")
    wait_until(lambda: walker.shop.billed > billed, PATIENCE_S, "the order is billed")


@walk("tail")
def tail(walker: Walker) -> None:
    walker.shop.sell(1)
    key = f"order-{len(walker.shop.sent) - 1}"
    expect(walker.page.locator("#feed")).to_contain_text(key, timeout=PATIENCE_S * 1000)
    walker.page.get_by_label("pause").check()


@walk("trace")
def trace(walker: Walker) -> None:
    walker.fills("Message id or key", walker.shop.sent[1])
    walker.clicks("Show")
    walker.sees(CHECKOUT)
    walker.sees(BILLING)


@walk("dead-letters")
def dead_letters(walker: Walker) -> None:
    walker.follows(MAILER)
    walker.is_at(f"Dead letters of {MAILER}")


@walk("dead-letters/{group}", "dead-letters/{group}/again")
def dead_letters_of(walker: Walker) -> None:
    walker.sees("mail-0")
    walker.page.get_by_label("all", exact=True).check()  # ticks every box of the page
    assert walker.page.locator("input[name=id]:checked").count() == walker.page.locator("input[name=id]").count() > 1
    walker.page.locator("select[name=how]").select_option("topic")
    walker.fills("Destination topic", PAYMENTS)
    walker.clicks("Deliver again")
    walker.leaves()
    walker.page.locator("select[name=which]").select_option("all")
    walker.page.locator("select[name=how]").select_option("topic")
    walker.fills("Destination topic", PAYMENTS)
    walker.clicks("Deliver again")
    walker.confirms()
    walker.sees(re.compile(r"([1-9]\d*) of \1 messages were sent"))


@walk("delayed", "delayed/{handle}/recall")
def delayed(walker: Walker) -> None:
    walker.shop.producer.send(Message(MAILS, b"not to be sent", keys=["regretted"], deliver_after=3600))
    walker.open("delayed")
    walker.sees("regretted")
    walker.clicks("recall ")
    walker.confirms()
    walker.open("delayed")
    walker.follows("Browse the messages")
    walker.sees("later")


@walk("half", "half/{id}/check")
def half(walker: Walker) -> None:
    walker.sees("Payments")
    walker.clicks("check ")
    walker.confirms()


# ------------------------------------------------------------------------------------------------------------- files


@walk("config/export")
def config_export(walker: Walker) -> None:
    walker.open("config")
    assert "kind: ClusterConfig" in walker.saves("Export")


@walk("dead-letters/{group}/export")
def dead_letters_export(walker: Walker) -> None:
    walker.open(f"dead-letters/{MAILER}")
    lines = walker.saves("JSON lines").splitlines()
    assert {json.loads(line)["topic"] for line in lines} == {f"%DLQ%{MAILER}"}


@walk("messages/export")
def messages_export(walker: Walker) -> None:
    walker.open(f"messages?topic={ORDERS}&key=order-3")
    assert "order-3" in walker.saves("CSV")


@walk("messages/{topic}/{id}/body")
def body(walker: Walker) -> None:
    walker.open(f"messages/{ORDERS}/{walker.shop.places[5]}")
    assert json.loads(walker.saves("Download"))["order"] == 5


@walk("messages/{topic}/{id}/unfolded")
def unfolded(walker: Walker) -> None:
    walker.open(f"tail?topic={ORDERS}")
    walker.page.get_by_role("button", name="body of ").first.click()
    expect(walker.page.locator("li > .unfolded .json")).to_contain_text('"order": ')
    walker.open(f"dead-letters/{MAILER}")
    address = walker.page.get_by_role("button", name="body of ").first.get_attribute("data-unfold") or ""
    walker.page.evaluate("document.querySelector('[data-unfold]').dataset.unfold += 'x/unfolded'")
    walker.page.get_by_role("button", name="body of ").first.click()
    expect(walker.page.locator("td.unfolded")).to_contain_text("there is no page")  # and the list is not out of date
    assert not walker.page.locator("#stale").count()
    walker.stumbled = [one for one in walker.stumbled if "404" not in one]
    assert address.endswith("/unfolded")


@walk("tail/rows")
def tail_rows(walker: Walker) -> None:
    walker.open(f"tail?topic={ORDERS}")
    with walker.page.expect_response(re.compile("tail/rows")) as waiting:
        walker.shop.sell(1)
    assert waiting.value.status == 200


# ----------------------------------------------------------------------------------------------------------- pictures

DOCS = Path(__file__).parents[2] / "docs"
PICTURE_BYTES_MAX = 200_000  # on a slow machine a page has more findings
PICTURES = {
    "overview": "",
    "overview-phone": "",
    "group-why": f"groups/{MAILER}/why",
    "group": f"groups/{ARCHIVE}",
    "find": "find?q=order-7",
    "message": f"messages/{ORDERS}/",
    "dead-letters": f"dead-letters/{MAILER}",
}
"""Of the documentation, by file: what they show."""


def test_pictures_of_the_documentation_are_small_and_there(walker: Walker, tmp_path: Path) -> None:
    target = DOCS / "images" if os.environ.get("ORBITMQ_SCREENSHOTS") else tmp_path
    for name, path in PICTURES.items():
        walker.open(path + (walker.shop.places[3] if path.endswith("/") else ""))
        is_phone = name.endswith("-phone")
        walker.as_seen(PHONE if is_phone else DESKTOP, dark=is_phone)
        picture = walker.page.screenshot(path=target / f"{name}.png")
        assert len(picture) < PICTURE_BYTES_MAX, name
    walker.close()
    named = {name for page in DOCS.rglob("*.md") for name in re.findall(r"images/([\w-]+)\.png", page.read_text())}
    assert named == set(PICTURES) == {path.stem for path in (DOCS / "images").glob("*.png")}


# ------------------------------------------------------------------------------------------------- the examiner itself


def test_an_examination_finds_what_is_wrong(walker: Walker) -> None:
    walker.open("")
    walker.page.evaluate(
        """() => {
            document.getElementById("content").innerHTML =
                "<img src='/static/icon.svg'><p>pale</p><button tabindex='-1'>never</button>";
            document.querySelector("p").style.cssText = "width: 2000px; color: #eee; background: #fff";
            console.error("broken");
            fetch("/nowhere");
        }"""
    )
    walker.examine()
    with pytest.raises(AssertionError) as found:
        walker.close()
    for wrong in ("image-alt", "color-contrast", "too wide, phone", "no key reaches", "console: broken", "404: "):
        assert wrong in str(found.value)
