/* The atlas: a map of the tokens (steps by position or kind, coloured by entropy) and one of the rollouts (steps by value). What is chosen
   is in the address. Labels from the server are numbers and fixed words; the tokens themselves come as a fragment of text nodes. */
import { formatNumber } from "../base/numbers.js";
import { announce, bindKey } from "../base/page.js";
import { readStyle } from "../charts/elements.js";
import { drawHeatLegend, Heatmap } from "../charts/heatmap.js";
import { liveRun } from "./live.js";
import { stepBar } from "./steps.js";

const root = document.getElementById("atlas");

const REFRESH_MS = 20000; // between two looks at a run that trains
const DEFAULTS = { of: "entropy", by: "position", scale: "linear", field: "reward" };
const query = new URLSearchParams(location.search);
const hasSetting = (name, value) => Boolean(root.querySelector(`[data-setting="${name}"] button[value="${CSS.escape(value)}"]`));
const settings = Object.fromEntries(Object.entries(DEFAULTS).map(([name, usual]) => [name, hasSetting(name, query.get(name) || "") ? query.get(name) : usual]));
const cell = { steps: query.get("steps") || "", positions: query.get("positions") || "", kind: query.get("kind") || "" };
let phase = root.dataset.phase;
let log = query.get("log") === "1";
const formatRange = ([first, last]) => (first === last ? `${first}` : `${first}–${last}`);
const findSection = (name) => root.querySelector(`[data-map="${name}"]`);
const findPart = (name, what) => findSection(name).querySelector(`[data-${what}]`);

function keepSettings() {
  const state = stepBar.state;
  const kept = new URLSearchParams();
  const put = (name, value, usual = "") => { if (value && value !== usual) kept.set(name, value); };
  put("phase", phase, state.phases.length ? state.phases[0].name : "");
  if (!state.following && state.step !== null) put("step", String(state.step));
  for (const [name, usual] of Object.entries(DEFAULTS)) put(name, settings[name], usual);
  put("log", log ? "1" : "");
  for (const [name, value] of Object.entries(cell)) put(name, value);
  history.replaceState(null, "", location.pathname + (kept.size ? `?${kept}` : ""));
}

function showSettings() {
  for (const group of root.querySelectorAll("[data-setting]")) for (const button of group.children) button.setAttribute("aria-pressed", String(button.value === settings[group.dataset.setting]));
  for (const button of root.querySelectorAll('[data-setting="scale"] button')) button.disabled = settings.by === "class";
  document.getElementById("atlas-log").checked = log;
}

const asked = { grid: 0, values: 0 };
/* The newest answer for a map; null when another was asked for meanwhile or there is none. */
async function fetchMap(name, parameters) {
  const mine = (asked[name] += 1);
  const heat = findPart(name, "heat");
  heat.setAttribute("aria-busy", "true");
  const response = await fetch(`${root.dataset[name]}?${new URLSearchParams({ phase, ...parameters })}`).catch(() => null);
  const found = response && response.ok ? await response.json() : null;
  if (mine !== asked[name]) return null;
  heat.setAttribute("aria-busy", "false");
  const error = findPart(name, "error");
  error.hidden = Boolean(found);
  if (!found) error.textContent = response ? `The server answered ${response.status}. Reload the page to try again.` : "The server is unreachable. Reload the page when it is back.";
  return found;
}

function findPercentile(values, share) {
  const sorted = values.slice().sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 0;
}

/* From a value to 0 … 1 of the ramp, ending at the 98th percentile of the cells; on a log scale from the 2nd on. */
function buildScale(values) {
  const all = values.flat().filter((value) => value !== null);
  const positive = all.filter((value) => value > 0);
  const low = log ? findPercentile(positive, 0.02) : Math.min(0, findPercentile(all, 0.02));
  const top = Math.max(findPercentile(log ? positive : all, 0.98), low * (log ? 1.001 : 1)) || 1;
  if (log && !positive.length) return { low: 0, top: 1, share: () => 0 };
  return { low, top, share: log ? (value) => (value <= low ? 0 : Math.log(value / low) / Math.log(top / low)) : (value) => (value - low) / (top - low || 1) };
}

let grid = null;
const tokens = findSection("grid") && new Heatmap(findPart("grid", "heat"), {
  choose(row, column) {
    const [label, first, last] = grid.rows[row];
    const [from, to] = grid.columns[column];
    Object.assign(cell, { steps: `${from}-${to}`, positions: first === null ? "" : `${first}-${last}`, kind: first === null ? label : "" });
    keepSettings();
    listTokens(true);
  },
  tell(row, column) { findPart("grid", "readout").textContent = row === null ? "\u00a0" : describeCell(row, column); },
});

function describeCell(row, column) {
  const value = grid.values[row][column];
  const where = `step ${formatRange(grid.columns[column])}, ${grid.by === "class" ? grid.rows[row][0] : `position ${grid.rows[row][0]}`}`;
  if (value === null) return `${where}: no token`;
  return `${where}: mean ${formatNumber(value)}${grid.unit ? ` ${grid.unit}` : ""} over ${formatCount(grid.counts[row][column], "token")}${grid.used < grid.total ? " of the sample" : ""}`;
}

const formatCount = (number, word) => `${number.toLocaleString("en").replaceAll(",", "\u202f")} ${word}${number === 1 ? "" : "s"}`;

async function loadGrid() {
  const found = await fetchMap("grid", { of: settings.of, by: settings.by, scale: settings.scale });
  if (!found) return;
  grid = found;
  drawGrid();
}

function drawGrid() {
  const none = !grid.columns.length;
  findPart("grid", "heat").hidden = findPart("grid", "legend").hidden = findPart("grid", "table").hidden = none;
  findPart("grid", "help").textContent = `${grid.label} ${grid.help}. Mean over the policy's own tokens${grid.by === "class" ? ", by kind of token" : ", by position in the completion"}.`;
  const sample = grid.used < grid.total ? `from ${formatCount(grid.used, "rollout")} of ${grid.exact ? "" : "about "}${formatCount(grid.total, "rollout")}, evenly over the steps` : `from ${formatCount(grid.used, "rollout")}`;
  findPart("grid", "note").textContent = none ? explainEmptyMap() : `${formatCount(grid.tokens, "token")} ${sample}`;
  if (none) return;
  const scale = buildScale(grid.values);
  const named = grid.by === "class";
  tokens.chosen = findChosenCell();
  tokens.show({ columns: grid.columns, rows: grid.rows.map(([label]) => label), ticks: named ? null : grid.rows.map(([, first]) => String(first)), values: grid.values, share: scale.share, named, upwards: !named, rowTitle: "position in the completion" });
  drawHeatLegend(findPart("grid", "legend"), { low: `${log ? "≤ " : ""}${formatNumber(scale.low)}`, high: `${formatNumber(scale.top)}+ ${grid.unit}`, empty: "no token" });
  findPart("grid", "legend").append(Object.assign(document.createElement("span"), { textContent: log ? "log scale, 2nd to 98th percentile of the cells" : "ends at the 98th percentile of the cells" }));
  fillTable("grid", grid.rows.map(([label]) => label), grid.columns, grid.values, named ? "kind of token" : "position");
}

function explainEmptyMap() {
  if (settings.of === "weight") return "No method gave tokens a weight of their own in these rollouts: every token counts 1.";
  return "These rollouts came without token arrays.";
}

/* The cell of the address, where the map as it is drawn has exactly that one. */
function findChosenCell() {
  const column = grid.columns.findIndex(([first, last]) => `${first}-${last}` === cell.steps);
  const row = grid.rows.findIndex(([label, first, last]) => (first === null ? label === cell.kind : `${first}-${last}` === cell.positions));
  return row >= 0 && column >= 0 ? [row, column] : null;
}

let listing = 0;
async function listTokens(focus = false) {
  if (!cell.steps) return;
  const mine = (listing += 1);
  const [box, title] = [root.querySelector("[data-tokens-list]"), document.getElementById("cell-title")];
  box.setAttribute("aria-busy", "true");
  const parameters = Object.fromEntries(Object.entries({ phase, of: settings.of, ...cell }).filter(([, value]) => value));
  const response = await fetch(`${root.dataset.tokens}?${new URLSearchParams(parameters)}`).catch(() => null);
  const text = response && response.ok ? await response.text() : "";
  if (mine !== listing) return;
  box.setAttribute("aria-busy", "false");
  const words = cell.kind || (cell.positions ? `position ${cell.positions.replace(/^(\d+)-\1$/, "$1").replace("-", "–")}` : "");
  title.textContent = `Step ${cell.steps.replace(/^(\d+)-\1$/, "$1").replace("-", "–")}${words ? `, ${words}` : ""}`;
  if (text) box.replaceChildren(...document.adoptNode(new DOMParser().parseFromString(text, "text/html").body).childNodes); // scripts of a parsed document never run
  else box.replaceChildren(Object.assign(document.createElement("p"), { className: "muted", textContent: "The tokens could not be loaded. Choose the cell again." }));
  if (focus && document.activeElement === findPart("grid", "heat") && innerWidth < 992) title.scrollIntoView({ block: "nearest" });
  announce(`${title.textContent}: ${box.querySelectorAll("li").length} tokens listed`);
}

let values = null;
const spread = findSection("values") && new Heatmap(findPart("values", "heat"), {
  choose(row, column) {
    if (values.counts[row][column]) location.assign(buildBrowserAddress(row, column));
    else announce("No rollout lies there.");
  },
  tell(row, column) { findPart("values", "readout").textContent = row === null ? "\u00a0" : describeValue(row, column); },
});

function describeBin(row) {
  const [low, high] = [values.edges[row], values.edges[row + 1]];
  if (values.field === "length") return formatRange([low, high - 1]);
  return `${formatNumber(low)} to ${formatNumber(high)}`;
}

/* Without the dust of floating point. */
const roundValue = (value) => Number(value.toPrecision(6)) * (Math.abs(value) > 1e-9 ? 1 : 0);

function describeValue(row, column) {
  const middle = values.quantiles[1][column];
  const here = `step ${formatRange(values.columns[column])}, ${values.label.toLowerCase()} ${describeBin(row)}${values.unit ? ` ${values.unit}` : ""}`;
  const share = values.shares[row][column];
  const center = middle === null ? "" : ` · mean ${formatNumber(values.mean[column])}, median ${formatNumber(middle)}, 5 to 95 %: ${formatNumber(values.quantiles[0][column])} to ${formatNumber(values.quantiles[2][column])}`;
  return `${here}: ${formatCount(values.counts[row][column], "rollout")}${share === null ? "" : ` (${formatNumber(share * 100)} %)`}${center}`;
}

function buildBrowserAddress(row, column) {
  const [first, last] = values.columns[column];
  const top = row === values.edges.length - 2 ? "le" : "lt";
  const filters = [`phase:is:${phase}`, ...(first === last ? [`step:eq:${first}`] : [`step:ge:${first}`, `step:le:${last}`]), `${values.field}:ge:${values.edges[row]}`, `${values.field}:${top}:${values.edges[row + 1]}`];
  return `${root.dataset.browser}&${new URLSearchParams(filters.map((one) => ["f", one]))}`;
}

async function loadValues() {
  const found = await fetchMap("values", { field: settings.field });
  if (!found) return;
  values = found;
  drawValues();
}

function drawValues() {
  const none = !values.columns.length;
  findPart("values", "heat").hidden = findPart("values", "legend").hidden = findPart("values", "table").hidden = none;
  findPart("values", "note").textContent = none ? `No rollout has a ${values.label.toLowerCase()} here.` : `${formatCount(values.total, "rollout")}${values.every > 1 ? `, one in ${values.every}` : ""}${values.unit ? `; values in ${values.unit}` : ""}`;
  if (none) return;
  const top = Math.max(...values.shares.flat().filter((share) => share !== null)) || 1;
  const [base, text] = [readStyle("--series-1"), readStyle("--text")];
  const tint = (share) => base.replace("rgb(", "rgba(").replace(")", `, ${0.08 + 0.87 * Math.sqrt(share)})`);
  const [low, high] = [values.edges[0], values.edges.at(-1)];
  const middle = values.field === "length" ? 0.5 : 0; // a whole number lies in the middle of its place
  const labels = values.edges.slice(0, -1).map((edge, row) => describeBin(row));
  spread.show({ columns: values.columns, rows: labels, ticks: values.edges.slice(0, -1).map((edge, row) => formatNumber(values.field === "length" ? edge : roundValue((edge + values.edges[row + 1]) / 2))), values: values.shares, share: (value) => value / top, color: tint, upwards: true, blank: true,
    rowTitle: values.label.toLowerCase(), y: (value) => (value + middle - low) / (high - low),
    lines: [{ values: values.quantiles[0], color: text, width: 1, dash: [3, 3] }, { values: values.quantiles[2], color: text, width: 1, dash: [3, 3] }, { values: values.quantiles[1], color: text, width: 1.6 }, { values: values.mean, color: readStyle("--series-2"), width: 2 }] });
  drawHeatLegend(findPart("values", "legend"), { low: "0", high: `${formatNumber(100 * top)} % of the step's rollouts`, color: tint });
  for (const [kind, words] of [["mean", "mean"], ["median", "median"], ["ends", "5 % and 95 %"]]) findPart("values", "legend").append(Object.assign(document.createElement("span"), { className: `heat-line ${kind}` }), Object.assign(document.createElement("span"), { textContent: words }));
  fillTable("values", labels, values.columns, values.counts, values.label.toLowerCase());
}

/* Filled when it is opened: it has thousands of cells. */
function fillTable(name, rows, columns, cells, corner) {
  const fold = findPart(name, "table");
  fold.ontoggle = () => { if (fold.open) build(); };
  function build() {
    const made = (tag, text, scope) => Object.assign(document.createElement(tag), { textContent: text, ...(scope ? { scope } : {}) });
    const table = Object.assign(document.createElement("table"), { className: "table plain" });
    const head = document.createElement("tr");
    head.append(made("th", corner, "col"), ...columns.map((column) => made("th", `step ${formatRange(column)}`, "col")));
    table.append(document.createElement("thead"), document.createElement("tbody"));
    table.tHead.append(head);
    rows.forEach((label, row) => {
      const line = document.createElement("tr");
      line.append(made("th", label, "row"), ...cells[row].map((value) => made("td", value === null ? "n/a" : formatNumber(value))));
      table.tBodies[0].append(line);
    });
    fold.querySelector(".heat-table").replaceChildren(table);
  }
  if (fold.open) build();
}

function pinStep() {
  const { following, step } = stepBar.state;
  for (const map of [tokens, spread]) { map.pin = following ? null : step; if (map.data) map.draw(); }
}

stepBar.on(async (step, wanted) => {
  const other = wanted !== phase;
  stepBar.set({ step: step ?? stepBar.state.step, following: step === null, phase: wanted });
  await stepBar.look({ adopt: true });
  phase = wanted;
  if (other) {
    if (!findSection("grid")) { location.assign(`?phase=${encodeURIComponent(wanted)}`); return; }
    Object.assign(cell, { steps: "", positions: "", kind: "" });
    root.querySelector("[data-tokens-list]").replaceChildren();
    document.getElementById("cell-title").textContent = "Tokens in context";
    loadGrid();
    loadValues();
  }
  if (tokens) pinStep();
  keepSettings();
});
stepBar.set({ phase });
stepBar.look({ adopt: true }).then(() => { if (tokens) pinStep(); });
function startMaps() {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-setting] button");
    if (!button) return;
    const name = button.parentElement.dataset.setting;
    if (settings[name] === button.value) return;
    settings[name] = button.value;
    if (name === "by") Object.assign(cell, { steps: "", positions: "", kind: "" });
    showSettings();
    keepSettings();
    if (name === "field") loadValues();
    else { loadGrid(); if (name === "of") listTokens(); }
  });
  document.getElementById("atlas-log").addEventListener("change", (event) => { log = event.target.checked; keepSettings(); if (grid) drawGrid(); });

  bindKey("e", "Go to the map of tokens", () => findPart("grid", "heat").focus());

  let renewed = Date.now();
  liveRun.on("delta", (delta) => {
    if (!delta.rollouts || !delta.rollouts.count || document.hidden || Date.now() - renewed < REFRESH_MS) return;
    renewed = Date.now();
    loadGrid();
    loadValues();
  });
  liveRun.on("reset", () => { loadGrid(); loadValues(); });
  document.addEventListener("lab:theme", () => { if (values) drawValues(); });
  showSettings();
  loadGrid();
  loadValues();
  listTokens();
}

if (tokens) startMaps();
