"""Debian's Chromium, driven by Playwright: pages that tell what a person would stumble over.

    with chromium() as browser:
        window = Window(browser, dashboard.url)
        window.open("topics")
        window.examine()       # desktop and phone, light and dark: axe-core, width, focus
        window.close()         # and nothing was logged as an error, missed, or asked for elsewhere

Knows no page of the dashboard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Request, Response, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
"""Of Debian's package; Playwright has no browser of its own here."""
QUIET = (  # or it looks for hosts that are not there
    "--disable-background-networking", "--disable-component-update", "--disable-gpu", "--disable-quic",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
DESKTOP, PHONE, LARGE, LARGEST = (1280, 900), (390, 844), (1920, 1080), (2560, 1440)
PATIENCE_MS = 30_000
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}
COLOURS = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
TOO_WIDE = """() => document.documentElement.scrollWidth > document.documentElement.clientWidth
    ? [...document.querySelectorAll("body *")].filter(
        (one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".wide, nav, pre, .hidden, .skip")
      ).map((one) => one.outerHTML.slice(0, 120)).slice(0, 3).concat("the body is too wide")
    : []"""
CUT = """() => [...document.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.getAttribute("aria-label"))"""
FITTED = "() => document.body.dataset.fitted === String(innerWidth)"
TEXTS = """() => {
    const found = [], data = "code, kbd, pre, bdi, .beginning, .json, .u-legend, option, body [lang], time";
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const one = walk.currentNode;
        if (!one.parentElement.closest(data)) found.push(one.textContent.trim());
    }
    for (const name of ["title", "aria-label", "placeholder"]) {
        for (const one of document.querySelectorAll(`[${name}]`)) found.push(one.getAttribute(name));
    }
    return found.filter((text) => text);
}"""
FOCUS = """() => {
    const one = document.activeElement, style = getComputedStyle(one);
    const box = one.getBoundingClientRect();
    return [one.tagName + " " + (one.name || one.getAttribute("href") || one.className || one.textContent.slice(0, 30)),
            style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0];
}"""
REACHABLE = """() => [...document.querySelectorAll("#content :is(a[href], button, input, select, textarea, summary)")]
    .filter((one) => one.type !== "hidden" && !one.disabled
    && one.offsetParent !== null && one.tabIndex < 0).map((one) => one.outerHTML.slice(0, 120))"""
TABS = 8  # steps with the tab key whose focus is looked at


@contextmanager
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)  # the default of a context is not that of `expect`
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET), chromium_sandbox=False)
        yield browser
        browser.close()


class Window:
    """One tab of a person who came for the first time; `stumbled` grows with what went wrong."""

    def __init__(self, browser: Browser, url: str, place: str = "local", **options: Any) -> None:
        self._host = urlsplit(url).netloc
        self.base = f"{url}/c/{place}/"
        self._context = browser.new_context(
            viewport={"width": DESKTOP[0], "height": DESKTOP[1]}, reduced_motion="reduce", timezone_id="UTC", **options
        )
        self._context.set_default_timeout(PATIENCE_MS)
        self.page = self._context.new_page()
        self.stumbled: list[str] = []
        self.posted: list[str] = []
        """Paths that forms were sent to, below the cluster."""
        self.page.on("console", lambda one: self._told(one.type, one.text))
        self.page.on("pageerror", lambda error: self.stumbled.append(f"script: {error}"))
        self.page.on("request", self._asked)
        self.page.on("requestfailed", self._failed)
        self.page.on("response", self._answered)

    def _told(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.stumbled.append(f"console: {text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != self._host:
            self.stumbled.append(f"asked elsewhere: {request.url}")
        if request.method == "POST":
            self.posted.append(request.url.removeprefix(self.base))

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # what a page had under way when it was left, and downloads
            self.stumbled.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.stumbled.append(f"{response.status}: {response.url}")

    def open(self, path: str) -> None:
        """`path` below the cluster, or from the root when it begins with `/`."""
        self.page.goto(urljoin(self.base, path))

    def examine(self) -> None:
        """This page, by both widths and both schemes; what is found is in `stumbled`. Ends as it began.

        Only colours differ between the schemes, and what stands on a phone stands on a desktop.
        """
        self._axe("desktop, light", COLOURS)
        self._focus()
        self.stumbled += [f"no key reaches {one}" for one in self.page.evaluate(REACHABLE)]
        self.as_seen(PHONE, dark=True)
        self._width("phone")
        self._axe("phone, dark", RULES)
        for size in (LARGEST, LARGE, DESKTOP):
            self.as_seen(size, dark=False)
            self._width(f"{size[0]} px")

    def as_seen(self, size: tuple[int, int], *, dark: bool) -> None:
        self.page.set_viewport_size({"width": size[0], "height": size[1]})
        self.page.emulate_media(color_scheme="dark" if dark else "light")

    def texts(self) -> list[str]:
        """What is to be read on this page, without what comes from the cluster."""
        return list(self.page.evaluate(TEXTS))

    def _axe(self, how: str, rules: Mapping[str, Any]) -> None:
        found = Axe().run(self.page, options=rules).response["violations"]
        for one in found:
            nodes = "; ".join(f"{node['html'][:160]} ({node['failureSummary'][:300]})" for node in one["nodes"][:3])
            self.stumbled.append(f"axe, {how}: {one['id']}: {one['help']}: {len(one['nodes'])}x {nodes}")

    def _width(self, how: str) -> None:
        self.page.wait_for_function(FITTED)
        self.stumbled += [f"too wide, {how}: {one}" for one in self.page.evaluate(TOO_WIDE)]
        self.stumbled += [f"cut off, {how}: {one}" for one in self.page.evaluate(CUT)]

    def _focus(self) -> None:
        self.page.keyboard.press("Control+Home")
        for _ in range(TABS):
            self.page.keyboard.press("Tab")
            what, is_seen = self.page.evaluate(FOCUS)
            if not is_seen and not what.startswith("BODY"):
                self.stumbled.append(f"the focus is not seen: {what}")

    def close(self) -> None:
        """AssertionError with all that went wrong."""
        self._context.close()
        assert not self.stumbled, "\n".join(self.stumbled)
