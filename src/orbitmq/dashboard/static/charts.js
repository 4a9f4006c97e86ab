// Draws the charts of a page with uPlot: their values are in the page, as JSON. Colours come from page.css.
"use strict";

const CHART_HEIGHT = 190;
const DASHES = [[], [6, 3], [2, 3], [10, 4, 2, 4], [14, 4], [4, 6]];
const charts = new Map(); // element -> uPlot

const compact = (value) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toFixed(1)}G`;
  if (size >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
  return size >= 10 || value === 0 ? String(Math.round(value)) : String(+value.toFixed(2));
};

function colour(place, name) {
  const probe = document.createElement("span");
  probe.className = name;
  place.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function axis(place, more) {
  const soft = colour(place, "chart-axis"), line = colour(place, "chart-grid");
  return { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", ...more };
}

// Two digits for hours and minutes, so that labels do not depend on the browser's language.
const clockTimes = (_, splits) => splits.map((at) => {
  const time = new Date(at * 1000);
  return `${two(time.getHours())}:${two(time.getMinutes())}`;
});

function options(place, data) {
  const last = data.times.length - 1;
  const series = data.series.map((one) => ({
    label: one.label,
    stroke: colour(place, `chart-${one.colour}`),
    width: 2,
    dash: DASHES[one.colour], // distinct without colours, too
    spanGaps: false,
    points: { show: false },
    value: (_, value) => (value === null || value === undefined ? "–" : `${compact(value)} ${data.unit}`),
  }));
  return {
    width: Math.max(place.clientWidth, 240),
    height: CHART_HEIGHT,
    legend: { live: true, idx: last },
    hooks: { setCursor: [(chart) => { if (chart.cursor.idx === null || chart.cursor.left < 0) chart.setLegend({ idx: last }, false); }] },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true, range: () => [data.begin, data.end] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
    series: [{ label: data.time, value: (_, at) => (at ? new Date(at * 1000).toTimeString().slice(0, 8) : "–") }, ...series],
    axes: [
      axis(place, { values: clockTimes, space: 60 }),
      axis(place, { label: data.unit, labelSize: 20, size: 56, values: (_, splits) => splits.map(compact) }),
    ],
  };
}

function drawCharts(anew = false) {
  if (!window.uPlot) return;
  for (const [place, chart] of charts) {
    if (place.isConnected) continue;
    chart.destroy();
    charts.delete(place);
  }
  for (const place of document.querySelectorAll("[data-chart]")) {
    if (charts.has(place) && !anew) continue;
    charts.get(place)?.destroy();
    place.replaceChildren();
    const data = JSON.parse(place.dataset.chart);
    const chart = new uPlot(options(place, data), [data.times, ...data.series.map((one) => one.values)], place);
    chart.setLegend({ idx: data.times.length - 1 }, false); // the latest values, until the mouse points to others
    charts.set(place, chart);
    const summary = place.parentElement.querySelector("[data-summary]");
    if (summary) summary.hidden = true; // the legend has it
  }
}

let resizing;
window.addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    for (const [place, chart] of charts) chart.setSize({ width: Math.max(place.clientWidth, 240), height: CHART_HEIGHT });
  }, 100);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawCharts(true));
document.addEventListener("htmx:afterSettle", () => drawCharts());
document.addEventListener("DOMContentLoaded", () => drawCharts());
