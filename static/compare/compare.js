/* The comparison's page: settings in the address, points fetched as charts come into view, runs hidden and grouped. CompareChart draws. */
import { showToast } from "../base/page.js";
import { listenToAxes } from "../charts/axes.js";
import { makeElement } from "../charts/elements.js";
import { listenToSmoothing } from "../charts/smoothing.js";
import { CompareChart, drawSwatch } from "./chart.js";
import { summarizeGroups } from "./groups.js";
import { followRuns } from "./live.js";
import { readSettings, writeSettings } from "./settings.js";

const source = document.getElementById("compare-data");

const AT_ONCE = 8; // metrics of one request
const COLORS = 8;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const data = JSON.parse(source.textContent);
const $ = (id) => document.getElementById(id);
const settings = readSettings(data.runs);
const store = new Map(); // metric → points, of the present axis and grouping
const charts = new Map(); // metric → CompareChart
const dirty = new Set();
const wanted = new Set();
const page = { runs: data.runs, report: data.report, quantiles: data.quantiles, settings, lit: null, hoverX: null, hovered: null, points: (metric) => store.get(metric), strands: listStrands, extent: findExtent, firstX: findFirstX, hover: showHover, zoomTo, zoomChart };

function keepSettings() {
  writeSettings(settings, data.runs);
  showReset();
}

function showReset() { $("reset-zoom").hidden = !settings.zoom && !Object.keys(settings.ranges).length; }

/* What lines stand for: each shown run, or each group of shown runs that agree in the chosen settings. */
function listStrands() {
  const shown = data.runs.filter((run) => !settings.hidden.has(run.number));
  if (!settings.by.length) return shown.map((run) => ({ id: `#${run.number}`, short: `#${run.number}`, label: `#${run.number} ${run.name}`, color: run.color, dash: run.dash, members: [run.number] }));
  return [...groupRuns()].flatMap(([label, members], place) => {
    const there = members.filter((run) => !settings.hidden.has(run.number));
    if (!there.length) return [];
    const short = String.fromCharCode(65 + place);
    return [{ id: short, short, label: `${short}: ${label}`, group: true, color: place % COLORS + 1, dash: DASHES[Math.floor(place / COLORS) % DASHES.length], members: there.map((run) => run.number) }];
  });
}

/* All runs by what they have in the chosen settings, hidden ones too, so that hiding a run changes no group's letter or colour. */
function groupRuns() {
  const found = new Map();
  const last = (key) => key.split(".").at(-1);
  const said = (key) => (settings.by.filter((other) => last(other) === last(key)).length > 1 ? key : last(key));
  for (const run of data.runs) {
    const label = settings.by.map((key) => `${said(key)} ${run.config[key] ?? "–"}`).join(", ");
    found.set(label, [...(found.get(label) || []), run]);
  }
  return new Map([...found].sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true })));
}

let [wide, first] = [null, null];
function forgetExtent() { [wide, first] = [null, null]; }
/* One x range for all charts, so that the same step lies at the same place everywhere. */
function findExtent() {
  if (wide) return wide;
  let [low, high] = [Infinity, -Infinity];
  for (const x of listPlaces()) {
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  if (low > high) return [0, 1];
  const room = (high - low || 1) * 0.015;
  wide = [low - room, high + room];
  return wide;
}

/* Every x that has a point. */
function* listPlaces() { for (const points of store.values()) for (const one of points) for (const x of one.x || one.steps) if (x !== null) yield x; }

function findLowestPlace() {
  let lowest = Infinity;
  for (const x of listPlaces()) if (x > 0 && x < lowest) lowest = x;
  return lowest;
}

/* The lowest x above 0, where a logarithmic axis begins. */
function findFirstX() {
  first ??= findLowestPlace();
  return Number.isFinite(first) ? first : 1;
}

let hovering = 0;
function showHover(x, chart) {
  page.hoverX = x;
  page.hovered = chart;
  if (hovering) return;
  hovering = requestAnimationFrame(() => { hovering = 0; for (const one of charts.values()) if (one.visible) one.showHover(); });
}

/* Without a range: as far as the points go, up and down too. */
function zoomTo(range) {
  settings.zoom = range;
  if (!range) settings.ranges = {};
  keepSettings();
  redrawAll();
}

function zoomChart(chart, range) {
  settings.ranges[chart.chart.metric] = range;
  keepSettings();
  dirty.add(chart);
  scheduleDrawing();
}

function redrawAll() { forgetExtent(); for (const chart of charts.values()) dirty.add(chart); scheduleDrawing(); }

let waiting = 0;
function scheduleDrawing() { if (!waiting) waiting = requestAnimationFrame(drawDirty); }
/* Draws for at most 60 ms a frame, so that twenty runs leave the page answering. */
function drawDirty() {
  waiting = 0;
  const began = performance.now();
  for (const chart of [...dirty]) {
    if (!chart.visible) continue;
    if (!store.has(chart.chart.metric)) { wanted.add(chart.chart.metric); continue; }
    dirty.delete(chart);
    chart.draw();
    if (performance.now() - began > 60) { scheduleDrawing(); break; }
  }
  fetchWanted();
}

let asking = false;
let generation = 0;
async function fetchWanted() {
  if (asking || !wanted.size) return;
  asking = true;
  const names = [...wanted].slice(0, AT_ONCE);
  for (const name of names) wanted.delete(name);
  try {
    await fetchPoints(names, data.runs.map((run) => run.number));
  } catch {
    showToast("The points of some charts could not be loaded. Reload the page to try again.", "error");
  } finally {
    asking = false;
    scheduleDrawing();
  }
}

/* Puts the points of these runs in the place of those that are there. */
async function fetchPoints(names, numbers) {
  const asked = generation;
  const query = new URLSearchParams([...numbers.map((number) => ["run", number]), ...names.map((name) => ["name", name])]);
  if (settings.x !== "step") query.set("x", settings.x);
  if (settings.by.length) query.set("aligned", "1");
  const answer = await fetch(`${data.series}?${query}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  const { series } = await answer.json();
  if (asked !== generation) return;
  for (const [name, points] of Object.entries(series)) {
    store.set(name, [...(store.get(name) || []).filter((one) => !numbers.includes(one.run)), ...points]);
    if (charts.has(name)) dirty.add(charts.get(name));
  }
  const before = wide;
  forgetExtent();
  if (!before || String(findExtent()) !== String(before)) for (const chart of charts.values()) dirty.add(chart);
}

/* Runs moved on: their new points, the line that says where they stand, and what they came to. Charts out of sight are fetched when they are seen. */
async function refreshRuns(numbers) {
  const answer = await fetch(`${data.page}?${new URLSearchParams([...data.runs.map((run) => ["run", run.number]), ["part", "live"]])}`);
  if (!answer.ok) throw new Error(String(answer.status));
  showProgress(new DOMParser().parseFromString(await answer.text(), "text/html"));
  const [seen, unseen] = [[], []];
  for (const metric of store.keys()) (charts.get(metric)?.visible ? seen : unseen).push(metric);
  for (const metric of unseen) {
    store.delete(metric);
    if (charts.has(metric)) dirty.add(charts.get(metric));
  }
  // Runs that are averaged share their step ranges, so that all are read again.
  const runs = settings.by.length ? data.runs.map((run) => run.number) : numbers;
  for (let at = 0; at < seen.length; at += AT_ONCE) await fetchPoints(seen.slice(at, at + AT_ONCE), runs);
  scheduleDrawing();
}

function showProgress(part) {
  for (const id of ["compare-training", "summary-table"]) $(id).replaceChildren(...document.importNode(part.getElementById(id), true).childNodes);
  const fresh = JSON.parse(part.getElementById("compare-data").textContent);
  for (const run of data.runs) run.figures = fresh.runs.find((one) => one.number === run.number)?.figures ?? run.figures;
  const known = data.charts.length;
  data.charts = fresh.charts;
  if (known !== data.charts.length) arrangeCharts();
  showLegends();
}

function refetchPoints() {
  generation += 1;
  store.clear();
  redrawAll();
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) { const chart = charts.get(entry.target.dataset.metric); if (chart) chart.visible = entry.isIntersecting; }
  scheduleDrawing();
}, { rootMargin: "250px" });

function place(grid, list) {
  const there = new Set(list.map((chart) => chart.metric));
  for (const figure of [...grid.children]) if (!there.has(figure.dataset.metric)) figure.remove();
  list.forEach((chart, index) => {
    if (!charts.has(chart.metric)) {
      charts.set(chart.metric, new CompareChart(chart, page));
      watcher.observe(charts.get(chart.metric).figure);
    }
    const { figure } = charts.get(chart.metric);
    if (grid.children[index] !== figure) grid.insertBefore(figure, grid.children[index] || null);
    dirty.add(charts.get(chart.metric));
  });
}

/* Which charts are on the page: what the words or the expression find, else the usual ones with the rest folded. */
function arrangeCharts() {
  const { test, problem } = buildMatcher(settings.filter);
  const chosen = test ? data.charts.filter(test) : data.charts.filter((chart) => chart.first);
  const rest = test ? [] : data.charts.filter((chart) => !chart.first);
  $("metric-note").textContent = problem || (test ? `${chosen.length} of ${data.charts.length} metrics` : "");
  $("more-charts").hidden = !rest.length;
  $("more-charts").querySelector("summary").textContent = `${rest.length} more metric${rest.length === 1 ? "" : "s"}`;
  $("no-metrics")?.toggleAttribute("hidden", data.charts.length > 0);
  $("no-charts").hidden = !test || chosen.length > 0;
  $("no-charts").querySelector("[data-words]").textContent = `None of the ${data.charts.length} metrics of these runs has “${settings.filter}” in its name.`;
  place($("chart-grid"), chosen);
  place($("more-grid"), settings.more ? rest : []);
  scheduleDrawing();
}

function buildMatcher(text) {
  const words = text.trim().toLowerCase();
  if (!words) return {};
  const written = /^\/(.+)\/$/.exec(text.trim());
  if (!written) return { test: (chart) => words.split(/\s+/).every((word) => `${chart.metric} ${chart.title}`.toLowerCase().includes(word)) };
  try {
    const expression = new RegExp(written[1], "i");
    return { test: (chart) => expression.test(chart.metric) };
  } catch {
    return { problem: `${text.trim()} is not a regular expression; the usual charts are shown.` };
  }
}

function showLegends() {
  const drawn = listStrands();
  for (const item of document.querySelectorAll("#run-legend li")) {
    const strand = drawn.find((one) => one.members.includes(Number(item.dataset.number)));
    if (strand) item.querySelector(".line-swatch").setAttribute("class", `line-swatch series-${strand.color} ${strand.dash}`);
    const off = settings.hidden.has(Number(item.dataset.number));
    item.classList.toggle("off", off);
    item.querySelector("button").setAttribute("aria-pressed", String(!off));
  }
  const list = $("group-legend");
  list.hidden = !settings.by.length;
  list.replaceChildren(...(settings.by.length ? drawn : []).map((strand) => {
    const item = makeElement("li");
    item.append(drawSwatch(strand), makeElement("span", "", strand.label), makeElement("span", "muted", `${strand.members.length} run${strand.members.length === 1 ? "" : "s"}: ${strand.members.map((number) => `#${number}`).join(" ")}`));
    highlightStrand(item, () => strand.id);
    return item;
  }));
  $("group-figures").hidden = !settings.by.length;
  $("group-figures").replaceChildren(...(settings.by.length ? [summarizeGroups(drawn, data)] : []));
  if ($("group-summary")) $("group-summary").textContent = settings.by.length ? `Grouped by ${settings.by.length} setting${settings.by.length === 1 ? "" : "s"}` : "Group by config";
}

/* Pointing at a run or group makes the other lines faint. */
function highlightStrand(item, id) {
  const light = (lit) => { if (page.lit !== lit) { page.lit = lit; redrawAll(); } };
  item.addEventListener("pointerenter", () => light(id()));
  item.addEventListener("pointerleave", () => light(null));
}

for (const item of document.querySelectorAll("#run-legend li")) {
  const number = Number(item.dataset.number);
  highlightStrand(item, () => listStrands().find((one) => one.members.includes(number))?.id ?? null);
  item.querySelector("button").addEventListener("click", () => {
    if (!settings.hidden.delete(number)) settings.hidden.add(number);
    keepSettings();
    showLegends();
    redrawAll();
  });
}

listenToSmoothing(settings, () => { keepSettings(); redrawAll(); });
listenToAxes(settings, () => { keepSettings(); redrawAll(); });

const axis = document.querySelector("[data-setting=x]");
axis.querySelector("[value=samples]").hidden = !data.samples;
if (!data.samples && settings.x === "samples") settings.x = "step";
function showAxis() { for (const button of axis.children) button.setAttribute("aria-pressed", String(button.value === settings.x)); }
axis.addEventListener("click", (event) => {
  if (!event.target.value || event.target.value === settings.x) return;
  Object.assign(settings, { x: event.target.value, zoom: null });
  showAxis();
  keepSettings();
  refetchPoints();
});
$("metric-filter").value = settings.filter;
$("metric-filter").addEventListener("input", () => { settings.filter = $("metric-filter").value; keepSettings(); arrangeCharts(); });
$("clear-filter").addEventListener("click", () => { $("metric-filter").value = settings.filter = ""; keepSettings(); arrangeCharts(); });
$("reset-zoom").addEventListener("click", () => zoomTo(null));
$("more-charts").open = settings.more;
$("more-charts").addEventListener("toggle", () => { if (settings.more !== $("more-charts").open) { settings.more = $("more-charts").open; keepSettings(); arrangeCharts(); } });

const boxes = [...document.querySelectorAll("input[name=by]")];
function groupBy(keys) {
  const regrouped = Boolean(keys.length) !== Boolean(settings.by.length);
  settings.by = keys;
  for (const box of boxes) box.checked = keys.includes(box.value);
  keepSettings();
  showLegends();
  if (regrouped) refetchPoints();
  else redrawAll();
}
for (const box of boxes) { box.checked = settings.by.includes(box.value); box.addEventListener("change", () => groupBy(boxes.filter((one) => one.checked).map((one) => one.value))); }
$("group-seeds")?.addEventListener("click", () => groupBy(boxes.map((box) => box.value).filter((key) => key !== "seed")));
$("group-none")?.addEventListener("click", () => groupBy([]));

const only = $("changed-only");
function showConfig() {
  for (const table of document.querySelectorAll(".config-table")) table.classList.toggle("changed-only", Boolean(only) && only.checked);
}
if (only) {
  only.checked = settings.config !== "all";
  only.addEventListener("change", () => { settings.config = only.checked ? "" : "all"; keepSettings(); showConfig(); });
}

document.addEventListener("lab:theme", redrawAll);
let width = innerWidth;
window.addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redrawAll(); } });
showReset();
showAxis();
showConfig();
showLegends();
arrangeCharts();
const training = data.runs.filter((run) => run.open).map((run) => run.number);
if (training.length) followRuns(training, refreshRuns);
