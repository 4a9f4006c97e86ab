// Needs a script: local times, live content and its failures, tables that fit, keys, copying, ticking all boxes.
"use strict";

const two = (number) => String(number).padStart(2, "0");
const texts = () => document.body.dataset; // in the language of the page

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-words])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    time.textContent = `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
}

// ------------------------------------------------------------------------------------------------------- live content

const isPaused = () => sessionStorage.getItem("paused") === "1"; // for all pages of this tab

function showLive() {
  const button = document.querySelector("[data-live]");
  if (!button) return;
  button.hidden = !window.htmx;
  button.setAttribute("aria-pressed", String(!isPaused()));
}

function toggleLive() {
  if (!document.querySelector("[data-live]")) return;
  sessionStorage.setItem("paused", isPaused() ? "0" : "1");
  passed = 0;
  showLive();
}

const isEdited = (field) => (["checkbox", "radio"].includes(field.type) ? field.checked !== field.defaultChecked
  : field.tagName === "SELECT" ? [...field.options].some((one) => one.selected !== one.defaultSelected) && field.selectedIndex > 0
    : field.value !== field.defaultValue);

// What the user is doing on the page must not vanish.
function isBusy() {
  const content = document.querySelector("#content");
  const active = document.activeElement;
  const isTyping = active && content.contains(active) && ["INPUT", "TEXTAREA", "SELECT"].includes(active.tagName);
  const isSelecting = String(getSelection()) !== "";
  return isTyping || isSelecting || document.querySelector("dialog[open]") !== null
    || [...content.querySelectorAll("input:not([type=hidden]), textarea, select")].some(isEdited);
}

let passed = 0;
setInterval(() => {
  const button = document.querySelector("[data-live]");
  if (!button || isPaused() || document.hidden || !window.htmx) return;
  passed += 1;
  if (passed < Number(button.dataset.live) || isBusy()) return;
  passed = 0;
  htmx.ajax("GET", location.href, { source: "#content", target: "#content", select: "#content", swap: "outerHTML" });
}, 1000);

// New content takes over what was open, scrolled and focused.
let kept = null;
const nameOf = (one) => one.id || one.getAttribute("href") || one.getAttribute("aria-label") || one.textContent;

document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "content") return;
  const active = document.activeElement;
  const content = event.detail.target;
  kept = {
    closed: [...content.querySelectorAll("details:not([open]) > summary")].map((one) => one.textContent),
    open: [...content.querySelectorAll("details[open] > summary")].map((one) => one.textContent),
    scrolled: [...content.querySelectorAll(".wide")].map((one) => one.scrollLeft),
    focus: content.contains(active) ? [active.tagName, nameOf(active)] : null,
  };
});

function restore() {
  if (!kept) return;
  const content = document.querySelector("#content");
  for (const summary of content.querySelectorAll("details > summary")) {
    if (kept.open.includes(summary.textContent)) summary.parentElement.open = true;
    else if (kept.closed.includes(summary.textContent)) summary.parentElement.open = false;
  }
  content.querySelectorAll(".wide").forEach((one, number) => { one.scrollLeft = kept.scrolled[number] || 0; });
  if (kept.focus) [...content.querySelectorAll(kept.focus[0])].find((one) => nameOf(one) === kept.focus[1])?.focus({ preventScroll: true });
  kept = null;
}

// After a failed refresh the old values stay, and a line says since when; the next success removes it.
function failed() {
  const content = document.querySelector("#content");
  if (!content || document.querySelector("#stale")) return;
  const since = document.createElement("time");
  since.dateTime = new Date().toISOString();
  const line = document.createElement("p");
  line.id = "stale";
  line.className = "partial";
  line.setAttribute("role", "alert");
  const [before, after] = texts().stale.split("{}");
  line.append(before, since, after);
  content.prepend(line);
  localTimes(line);
}

for (const failure of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) document.addEventListener(failure, failed);
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) document.querySelector("#stale")?.remove();
});

// --------------------------------------------------------------------------------------------------- tables that fit

// A table that is wider than its place becomes a list of cards, so that no column is cut off.
function fit() {
  const places = [...document.querySelectorAll(".wide")];
  for (const place of places) place.classList.remove("cards-of-rows");
  const wide = places.filter((place) => place.scrollWidth > place.clientWidth + 1);
  for (const place of wide) label(place.querySelector("table"));
  for (const place of wide) place.classList.add("cards-of-rows");
  document.body.dataset.fitted = String(innerWidth);
}

// Cells name their columns, and roles say that it is still a table.
function label(table) {
  if (!table || table.dataset.labelled) return;
  table.dataset.labelled = "1";
  const headings = [...table.querySelectorAll("thead th")].map((one) => (one.querySelector("a, span") || one).textContent.replace(/[ ↑↓]+$/, "").trim());
  table.setAttribute("role", "table");
  for (const part of table.querySelectorAll("thead, tbody")) part.setAttribute("role", "rowgroup");
  for (const heading of table.querySelectorAll("thead th")) heading.setAttribute("role", "columnheader");
  for (const row of table.querySelectorAll("tr")) row.setAttribute("role", "row");
  for (const row of table.querySelectorAll("tbody tr")) {
    let column = 0;
    for (const cell of row.cells) {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      if (cell.colSpan === 1 && headings[column]) cell.dataset.label = headings[column];
      column += cell.colSpan;
    }
  }
}

let fitting;
window.addEventListener("resize", () => {
  clearTimeout(fitting);
  fitting = setTimeout(fit, 50);
});

// --------------------------------------------------------------------------------------------------------------- keys

const rowLinks = () => [...document.querySelectorAll("#content tbody tr:not(:has(> [colspan]))")]
  .map((row) => row.querySelector("a[href]")).filter((one) => one?.offsetParent);

function step(by) {
  const links = rowLinks();
  if (!links.length) return;
  const row = document.activeElement?.closest("tr");
  const now = links.findIndex((one) => one.closest("tr") === row);
  const next = links[Math.min(Math.max(now < 0 ? (by > 0 ? 0 : links.length - 1) : now + by, 0), links.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function showKeys() {
  const keys = document.querySelector("#keys");
  if (keys && !keys.open) keys.showModal();
}

const focusOn = (selector) => {
  const field = document.querySelector(selector);
  field?.focus();
  field?.select?.();
};
const KEYS = {
  "/": () => focusOn("#find"),
  f: () => focusOn("#content form.row[method=get] input:not([type=hidden])"),
  j: () => step(1),
  k: () => step(-1),
  o: () => {
    const row = document.activeElement?.closest("tr, li");
    (row?.querySelector("[data-unfold]") || row?.previousElementSibling?.querySelector("[data-unfold]") || document.querySelector("[data-unfold]"))?.click();
  },
  p: toggleLive,
  r: () => location.reload(),
  "?": showKeys,
};
let isGoing = false;

document.addEventListener("keydown", (event) => {
  const place = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || place.isContentEditable || document.querySelector("dialog[open]")) return;
  if (["INPUT", "TEXTAREA", "SELECT"].includes(place.tagName) && !["checkbox", "radio", "button"].includes(place.type)) {
    if (event.key === "Escape") place.blur();
    return;
  }
  if (isGoing) {
    isGoing = false;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  if (event.key === "g") {
    isGoing = true;
    setTimeout(() => { isGoing = false; }, 1500);
    return;
  }
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

// ------------------------------------------------------------------------------------------------------------- clicks

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    for (const box of document.querySelectorAll(`input[type=checkbox][name="${event.target.dataset.all}"]`)) box.checked = event.target.checked;
  }
  if (event.target.matches("[data-send]")) event.target.form.requestSubmit();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-live]")) toggleLive();
  if (event.target.closest("[data-keys]")) showKeys();
  const folded = event.target.closest("[data-unfold]");
  if (folded) unfold(folded);
  const fold = event.target.closest("[data-fold]");
  if (fold) for (const one of document.querySelectorAll(".json details")) one.open = fold.dataset.fold === "open";
  const copy = event.target.closest("[data-copy]");
  if (!copy || !navigator.clipboard) return;
  const text = copy.dataset.copy === "" ? document.getElementById(copy.dataset.copyFrom).textContent : copy.dataset.copy;
  navigator.clipboard.writeText(text).then(() => {
    const before = copy.textContent;
    copy.textContent = texts().copied;
    setTimeout(() => { copy.textContent = before; }, 1500);
  });
});

// A body of a list is unfolded below its row, and the list stays as it is.
function unfold(button) {
  const row = button.closest("tr, li"), isOpen = button.getAttribute("aria-expanded") === "true";
  button.setAttribute("aria-expanded", String(!isOpen));
  if (isOpen) {
    (row.tagName === "TR" ? row.nextElementSibling : row.querySelector(".unfolded")).remove();
    return;
  }
  let place = document.createElement("div");
  if (row.tagName === "TR") {
    const below = row.parentElement.insertRow(row.sectionRowIndex + 1);
    place = below.insertCell();
    place.colSpan = row.cells.length;
    for (const [part, role] of [[below, "row"], [place, "cell"]]) if (row.hasAttribute("role")) part.setAttribute("role", role);
  } else row.append(place);
  place.className = "unfolded";
  htmx.ajax("GET", button.dataset.unfold, { source: button, target: place, swap: "innerHTML" });
}

// An error takes the place of the body: the list itself is not out of date.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (!event.detail.target.matches(".unfolded") || event.detail.xhr.status < 400) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
  event.detail.selectOverride = "#content > *";
});

// A live tail: paused while its box is ticked or the page is hidden; old rows are removed beyond the limit.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.matches("[data-pausable]") && (document.hidden || document.querySelector("[data-pause]:checked"))) event.preventDefault();
});

document.addEventListener("htmx:afterSettle", () => {
  for (const list of document.querySelectorAll("[data-keep]")) {
    while (list.children.length > Number(list.dataset.keep)) list.lastElementChild.remove();
  }
});

// What needs a script is hidden without one.
function begin() {
  for (const one of document.querySelectorAll("[data-scripted]")) one.hidden = false;
  localTimes(document);
  showLive();
  fit();
}

document.addEventListener("htmx:afterSwap", () => { begin(); restore(); });
document.addEventListener("DOMContentLoaded", begin);
