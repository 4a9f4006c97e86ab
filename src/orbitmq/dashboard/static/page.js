// Needs a script: local times, refreshing and reporting its failures, copying, ticking all boxes. Works without htmx, too.
"use strict";

const two = (number) => String(number).padStart(2, "0");

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-words])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    time.textContent = `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }
}

// The state of the box is stored for this tab and page.
function refreshing() {
  const box = document.querySelector("[data-refresh]");
  if (!box) return;
  const key = `refresh ${location.pathname}`;
  box.checked = sessionStorage.getItem(key) === "1";
}

let passed = 0;
setInterval(() => {
  const box = document.querySelector("[data-refresh]");
  if (!box || !box.checked || document.hidden || !window.htmx) return;
  passed += 1;
  if (passed < Number(box.dataset.refresh)) return;
  passed = 0;
  const typing = document.activeElement && ["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement.tagName) && document.activeElement !== box;
  if (typing) return;
  htmx.ajax("GET", location.href, { source: "#content", target: "#content", select: "#content", swap: "outerHTML" });
}, 1000);

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-refresh]")) {
    passed = 0;
    sessionStorage.setItem(`refresh ${location.pathname}`, event.target.checked ? "1" : "0");
  }
  if (event.target.matches("[data-all]")) {
    for (const box of document.querySelectorAll(`input[type=checkbox][name="${event.target.dataset.all}"]`)) box.checked = event.target.checked;
  }
});

document.addEventListener("click", (event) => {
  const copy = event.target.closest("[data-copy]");
  if (!copy || !navigator.clipboard) return;
  navigator.clipboard.writeText(copy.dataset.copy).then(() => {
    const before = copy.textContent;
    copy.textContent = "copied";
    setTimeout(() => { copy.textContent = before; }, 1500);
  });
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
  line.append("Refreshing has failed since ", since, ": this page is out of date.");
  content.prepend(line);
  localTimes(line);
}

for (const failure of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) document.addEventListener(failure, failed);
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful) document.querySelector("#stale")?.remove();
});

document.addEventListener("htmx:afterSwap", (event) => { localTimes(document); refreshing(); });
document.addEventListener("DOMContentLoaded", () => { localTimes(document); refreshing(); });
