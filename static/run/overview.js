/* The overview's charts: panels come from the server, points from SeriesStore, deltas from liveRun; Chart draws one. */
import { listenToAxes } from "../charts/axes.js";
import { Chart } from "../charts/chart.js";
import { picks } from "../charts/picks.js";
import { makeElement } from "../charts/elements.js";
import { CHART_KINDS } from "../charts/panels.js";
import { plotlyLoaded } from "../charts/plotly.js";
import { SeriesStore } from "../charts/series.js";
import { readSettings, writeSettings } from "../charts/settings.js";
import { listenToSmoothing } from "../charts/smoothing.js";
import { liveRun } from "./live.js";
import { makeSection, orderSections } from "./sections.js";

const root = document.getElementById("overview");

const SLICE_MS = 20; // of drawing at a stretch: what somebody does meanwhile waits no longer
const MOST_POINTS = 5000; // of one metric; then the page asks for a thinned one
const MARKS_MS = 60000;
const box = document.getElementById("charts");
const store = new SeriesStore();
const charts = new Map(); // panel id → Chart
const dirty = new Set();
const unsaid = new Set(); // charts whose words are old
const settings = readSettings();
const pinned = { wanted: "", x: null };
const page = { store, settings, csv: root.dataset.csv, alert: root.dataset.alert, report: root.dataset.report, hoverX: null, pinned: null, hover: hoverAt, pick: pickPoint, zoomTo, zoomChart, redraw: redrawChart, showFull, extent: findExtent, firstX: findFirstX, open: () => liveRun.isOpen(),
  /* x of the pinned step; null without a pin. */
  get pinX() {
    const wanted = `${page.pinned} ${store.axes.size} ${settings.x}`;
    if (pinned.wanted !== wanted) Object.assign(pinned, { wanted, x: page.pinned === null ? null : store.x(findNearestStep(page.pinned), settings.x) ?? null });
    return pinned.x;
  },
  /* x of what the legends say: where the pointer is, else the pin; null for the newest. */
  get readX() { return page.hoverX ?? page.pinX; } };
let marksAt = 0;

function keepSettings() {
  writeSettings(settings);
  showReset();
}

function showReset() { document.getElementById("reset-zoom").hidden = !settings.zoom && !Object.keys(settings.ranges).length; }

function showMarksKey() {
  const words = { checkpoint: "checkpoint", resume: "resumed", saved: "policy saved", alert: "alert", edit: "edit" };
  const entries = Object.keys(words).flatMap((kind) => {
    const marks = store.marks.filter((mark) => mark.kind === kind);
    if (!marks.length) return [];
    const entry = makeElement("span", kind, kind in NAMED ? describeMarks(kind, marks) : words[kind]);
    if (kind in NAMED) entry.title = marks.map((mark) => mark.label).join("\n");
    return [entry];
  });
  document.getElementById("marks-key").replaceChildren(...entries);
  if (store.thinned) document.getElementById("marks-key").append(makeElement("small", "", "long run: lines show the extremes of each stretch, the CSV has every point"));
}

const NAMED = { alert: "alert: ", edit: "" }; // kinds whose marks say each what they are
function describeMarks(kind, marks) { return marks.length === 1 ? `${NAMED[kind]}${marks[0].label}` : `${marks.length} ${kind}s`; }

let wide = null;
/* All charts share one x range, so that the same step lies at the same place everywhere. */
function findExtent() {
  if (wide) return wide;
  let [low, high] = [Infinity, -Infinity];
  for (const step of store.axes.keys()) {
    const x = store.x(step, settings.x);
    if (x === undefined) continue;
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (low > high) return [0, 1];
  const room = (high - low || 1) * 0.015;
  wide = [low - room, high + room];
  return wide;
}

/* The lowest x above 0, where a logarithmic axis begins. */
function findFirstX() {
  const above = [...store.axes.keys()].map((step) => store.x(step, settings.x)).filter((x) => x > 0);
  return above.length ? above.reduce((one, other) => Math.min(one, other)) : 1;
}

function hoverAt(x) {
  page.hoverX = x;
  showAll();
}

let showing = 0;
function showAll() {
  showing ||= requestAnimationFrame(() => { showing = 0; for (const chart of charts.values()) if (chart.visible) { chart.showValues(); chart.showCross(); } });
}

/* The logged step nearest to a step, or to an x of the axis in use. */
function findNearestStep(wanted, at = (step) => step) {
  let [best, distance] = [wanted, Infinity];
  for (const step of store.axes.keys()) {
    const off = Math.abs((at(step) ?? Infinity) - wanted);
    if (off < distance) [best, distance] = [step, off];
  }
  return best;
}

/* Somebody chose a point of a chart: its step, by a click (which opens the rollouts) or by arrow keys. */
function pickPoint(chart, x, opens) { picks.show?.(findNearestStep(x, (step) => store.x(step, settings.x)), chart.panel.metrics.some((metric) => metric.startsWith("heldout/")), opens, chart.figure); }

export const overview = { pin(step) { page.pinned = step; showAll(); }, redraw: () => redrawAll(true), get series() { return store.series; } };

/* Without a range: as far as the points go, up and down too. */
function zoomTo(range) {
  settings.zoom = range;
  if (!range) settings.ranges = {};
  keepSettings();
  redrawAll(true);
}

function zoomChart(panel, range) {
  settings.ranges[panel] = range;
  keepSettings();
  redrawChart(charts.get(panel));
}

function redrawChart(chart) { markDirty(chart); schedule(true); }
function redrawAll(asked = false) { wide = null; for (const chart of charts.values()) markDirty(chart); schedule(asked); }
function markDirty(chart) { dirty.add(chart); unsaid.add(chart); }

let waiting = 0;
let paidAt = 0; // when the last drawing is paid for: as long after its end as it took
let whole = false;
/* Points that come are drawn in slices, the charts that wait longest first, in half of the time; what somebody asked for by hand is drawn at once. */
function schedule(asked = false) {
  whole ||= asked;
  if (document.hidden || (waiting && !asked)) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => requestAnimationFrame(drawDirty), asked ? 0 : Math.max(0, paidAt - performance.now()));
}

function drawDirty() {
  waiting = 0;
  if (document.hidden) return;
  const begin = performance.now();
  const most = whole ? Infinity : SLICE_MS;
  whole = false;
  for (const chart of unsaid) if (!chart.visible) chart.showValues(); // right before it is seen
  unsaid.clear();
  const seen = [...dirty].filter((chart) => chart.visible);
  while (seen.length && performance.now() - begin < most) {
    const chart = seen.shift();
    dirty.delete(chart);
    chart.draw();
  }
  const end = performance.now();
  paidAt = end + (end - begin);
  if (seen.length) schedule();
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const chart = charts.get(entry.target.dataset.panel);
    if (chart) chart.visible = entry.isIntersecting;
  }
  showAll(); // pins and values may have moved while a chart was out of sight
  schedule();
}, { rootMargin: "200px" });

/* Lays the panels out by section; a chart that is there stays, so that nothing flashes. */
function arrangeCharts() {
  const wanted = new Map(store.panels.map((panel) => [panel.id, panel]));
  for (const [id, chart] of charts) {
    const panel = wanted.get(id);
    if (panel && JSON.stringify(panel.traces) === JSON.stringify(chart.panel.traces) && panel.title === chart.panel.title) continue;
    watcher.unobserve(chart.figure);
    if (chart.listening) Plotly.purge(chart.plot);
    chart.figure.remove();
    charts.delete(id);
    dirty.delete(chart);
    unsaid.delete(chart);
  }
  const sections = new Map([...box.querySelectorAll("section")].map((section) => [section.dataset.section, section]));
  const placed = new Map(); // grid -> how many of its charts stand where they belong: one with a new line is made anew, and keeps its place
  for (const panel of store.panels) {
    const name = panel.folded ? `${panel.section}+` : panel.section;
    if (!sections.has(name)) sections.set(name, makeSection(name, panel, store.methods));
    if (!charts.has(panel.id)) addChart(panel);
    const [section, figure] = [sections.get(name), charts.get(panel.id).figure];
    const grid = section.querySelector(".chart-grid");
    const place = placed.get(grid) || 0;
    if (grid.children[place] !== figure) grid.insertBefore(figure, grid.children[place] || null);
    placed.set(grid, place + 1);
  }
  orderSections(store.panels).forEach((name, index) => { if (box.children[index] !== sections.get(name)) box.insertBefore(sections.get(name), box.children[index] || null); });
  for (const section of sections.values()) if (!section.querySelector("figure")) section.remove();
  filterCharts();
}

function addChart(panel) {
  const chart = new (CHART_KINDS[panel.kind] || Chart)(panel, page);
  charts.set(panel.id, chart);
  watcher.observe(chart.figure);
}

function filterCharts() {
  const words = settings.filter.toLowerCase();
  for (const chart of charts.values()) {
    const text = [chart.panel.title, chart.panel.method, ...chart.panel.traces.flatMap((trace) => [trace.metric, trace.label])].join(" ").toLowerCase();
    chart.figure.hidden = Boolean(words) && !text.includes(words);
  }
  for (const section of box.querySelectorAll("section")) {
    section.hidden = !section.querySelector("figure:not([hidden])");
    const fold = section.querySelector("details");
    if (fold && words && !section.hidden) fold.open = true;
  }
}

function showFull(id) {
  settings.full = charts.has(id) ? id : "";
  for (const [name, chart] of charts) {
    chart.figure.classList.toggle("chart-full", name === settings.full);
    chart.fullButton.setAttribute("aria-pressed", String(name === settings.full));
    markDirty(chart);
  }
  document.body.classList.toggle("has-full-chart", Boolean(settings.full));
  if (settings.full) charts.get(settings.full).fullButton.focus();
  keepSettings();
  schedule();
}

document.addEventListener("keydown", (event) => {
  if (!settings.full || document.querySelector("dialog[open]")) return;
  const shown = [...charts.values()].filter((chart) => !chart.figure.hidden).map((chart) => chart.panel.id);
  const at = shown.indexOf(settings.full);
  if (event.key === "Escape") showFull("");
  else if (event.key === "ArrowRight") showFull(shown[(at + 1) % shown.length]);
  else if (event.key === "ArrowLeft") showFull(shown[(at - 1 + shown.length) % shown.length]);
});

async function loadMetrics() {
  const [response] = await Promise.all([fetch(root.dataset.metrics, { headers: { Accept: "application/json" } }), plotlyLoaded]);
  if (!response.ok) throw new Error(response.status === 404 ? "This run is not there any more." : `The server answered ${response.status}.`);
  const snapshot = await response.json();
  store.load(snapshot);
  marksAt = Date.now();
  liveRun.apply(snapshot.state);
  if (!store.samples && settings.x === "samples") settings.x = "step";
  showAxis();
  arrangeCharts();
  showMarksKey();
  redrawAll();
  showCharts();
  return snapshot.cursor;
}

function showCharts() {
  box.setAttribute("aria-busy", "false");
  const message = document.getElementById("charts-loading");
  if (message) message.remove();
  document.getElementById("charts-error").hidden = true;
  const any = Object.keys(store.series).length > 0;
  document.getElementById("charts-empty").hidden = any;
  document.querySelector(".chart-bar").hidden = !any;
}

async function startCharts() {
  try {
    liveRun.start(await loadMetrics());
    if (settings.full) showFull(settings.full);
  } catch (error) {
    document.getElementById("charts-loading")?.remove();
    const failed = document.getElementById("charts-error");
    failed.hidden = false;
    failed.querySelector("p").textContent = error.message || "The server is unreachable.";
  }
}

let reloading = 0;
function reloadSoon() {
  if (reloading) return;
  reloading = setTimeout(async () => {
    reloading = 0;
    try { await liveRun.reload(loadMetrics); } catch { reloadSoon(); }
  }, 300 + Math.random() * 700);
}

let markings = 0;
async function refreshMarks() {
  const mine = (markings += 1);
  marksAt = Date.now();
  const response = await fetch(`${root.dataset.metrics}?part=marks`);
  if (!response.ok) return;
  const { marks } = await response.json();
  if (mine !== markings) return; // asked for again meanwhile
  store.marks = marks;
  showMarksKey();
  redrawAll();
}

liveRun.on("delta", (delta) => {
  const changed = store.apply(delta);
  wide = null;
  // A metric of no method must have a chart of its own too, whatever methods draw it.
  const known = new Set(store.panels.flatMap((panel) => panel.metrics.filter((metric) => !panel.method || metric.startsWith(`${panel.method}/`))));
  if ([...changed].some((name) => !known.has(name)) || store.longest > MOST_POINTS) reloadSoon();
  if (changed.size) redrawAll();
  if (Date.now() - marksAt > MARKS_MS) refreshMarks();
});
liveRun.on("reset", () => reloadSoon());
let [status, edits] = ["", null];
liveRun.on("state", (state) => {
  const edited = edits !== null && edits !== state.edits;
  if ((status && status !== state.status) || edited) refreshMarks();
  if (edited) reloadSoon(); // the weights in the legends may be others
  [status, edits] = [state.status, state.edits];
});

listenToSmoothing(settings, () => { keepSettings(); redrawAll(); });

const axis = document.querySelector("[data-setting=x]");
function showAxis() {
  for (const button of axis.children) button.setAttribute("aria-pressed", String(button.value === settings.x));
  axis.querySelector("[value=samples]").hidden = !store.samples;
}
axis.addEventListener("click", (event) => {
  if (!event.target.value) return;
  Object.assign(settings, { x: event.target.value, zoom: null });
  showAxis();
  keepSettings();
  redrawAll(true);
});
showAxis();

listenToAxes(settings, () => { keepSettings(); redrawAll(true); });
const search = document.getElementById("chart-filter");
search.value = settings.filter;
search.addEventListener("input", () => { settings.filter = search.value; filterCharts(); keepSettings(); });
document.getElementById("reset-zoom").addEventListener("click", () => zoomTo(null));
showReset();
document.getElementById("charts-retry").addEventListener("click", startCharts);
document.addEventListener("lab:theme", () => redrawAll(true));
document.addEventListener("visibilitychange", () => schedule());
box.addEventListener("toggle", () => schedule(true), true);
let width = innerWidth;
window.addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redrawAll(true); } });

startCharts();
