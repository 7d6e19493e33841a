/* The charts of one prompt's history: a line for each run and phase over the steps. What is hidden is in the address (hide=2-train). Plotly
   gets numbers and fixed words only; runs' names stay in the table. */
import { readStyle } from "../charts/elements.js";
import { plotlyLoaded } from "../charts/plotly.js";

const data = JSON.parse(document.getElementById("story-data").textContent);
const buttons = [...document.querySelectorAll("[data-series]")];
const charts = [...document.querySelectorAll("#story [data-measure]")];
const NAMES = { passed: "pass rate", mean: "reward", entropy: "entropy", length: "length" };
const hidden = new Set(new URLSearchParams(location.search).getAll("hide"));
const MOST_BANDS = 3; // series up to which ranges and turns are drawn: more of them hide each other
const listShown = () => data.filter((one) => !hidden.has(one.key));

/* A colour as Plotly takes it, nearly transparent. */
function fadeColor(color) { return color.replace(/^rgb\(([^)]+)\)$/, (all, parts) => `rgba(${parts.replaceAll(" ", ", ").replaceAll(",,", ",")}, 0.14)`); }

function buildTraces(measure) {
  const made = [];
  const ranges = measure === "mean" && listShown().length <= MOST_BANDS;
  data.forEach((one, place) => {
    if (hidden.has(one.key)) return;
    const color = readStyle(`--series-${(place % 8) + 1}`);
    const shared = { type: "scatter", x: one.step, connectgaps: false, showlegend: false };
    if (ranges && one.step.length > 1) {
      const edge = { ...shared, mode: "lines", line: { width: 0, color }, hoverinfo: "skip" };
      made.push({ ...edge, y: one.low }, { ...edge, y: one.high, fill: "tonexty", fillcolor: fadeColor(color) });
    }
    // A series of one visit has no band: a bar from its least to its most answer.
    const whole = (from, to) => one.mean.map((mean, index) => (mean === null ? 0 : Math.abs(to[index] - from[index])));
    const reach = ranges && one.step.length === 1 ? { error_y: { type: "data", symmetric: false, array: whole(one.mean, one.high), arrayminus: whole(one.low, one.mean), color, thickness: 1, width: 4 } } : {};
    made.push({ ...shared, ...reach, y: one[measure], mode: "lines+markers", customdata: one.step.map((step, index) => `${one.url}${step}/${one.group[index]}/`),
      line: { color, width: 1.8, dash: one.heldout ? "dot" : "solid" }, marker: { color, size: one.step.length > 60 ? 4 : 7, symbol: one.heldout ? "circle-open" : "circle" },
      text: one.count.map((count) => `${count} answer${count === 1 ? "" : "s"}`), name: one.label,
      hovertemplate: `${one.label}, step %{x}: ${NAMES[measure]} %{y:.3~g} (%{text})<extra></extra>` });
  });
  return made;
}

/* Where a prompt was solved and unlearned, as lines in the chart of pass rates. */
function turns(measure) {
  if (measure !== "passed") return [];
  const threshold = { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.5, y1: 0.5, layer: "below", line: { color: readStyle("--border-strong"), width: 1, dash: "dash" } };
  const shown = listShown();
  const marks = shown.length > MOST_BANDS ? [] : shown.flatMap((one) => one.turns.filter((turn) => turn.confirmed).map((turn) => ({
    type: "line", yref: "paper", x0: turn.step, x1: turn.step, y0: 0, y1: 1, layer: "below", line: { color: readStyle(turn.solved ? "--good" : "--bad"), width: 1, dash: turn.solved ? "solid" : "dot" },
  })));
  return [threshold, ...marks];
}

function buildLayout(measure) {
  const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), linecolor: readStyle("--border"), zeroline: false, tickfont: { size: 11 }, fixedrange: false };
  return {
    height: 220, autosize: true, margin: { l: 44, r: 10, t: 6, b: 34 }, hovermode: "closest", dragmode: "zoom", showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 },
    hoverlabel: { bgcolor: readStyle("--surface"), bordercolor: readStyle("--border-strong"), font: { color: readStyle("--text"), size: 12 } },
    xaxis: { ...axis, title: { text: "step", standoff: 4, font: { size: 11 } }, showgrid: false, nticks: 6, rangemode: "tozero" },
    yaxis: { ...axis, automargin: true, nticks: 5, fixedrange: true, ...(measure === "passed" ? { range: [-0.06, 1.06] } : { rangemode: measure === "mean" ? "normal" : "tozero" }) },
    shapes: turns(measure), uirevision: "kept",
  };
}

function drawChart() {
  document.querySelector("[data-measure=mean] [data-statistic]").textContent = listShown().length <= MOST_BANDS ? "mean, from least to most" : "mean";
  for (const chart of charts) {
    const plot = chart.querySelector(".chart-plot");
    const { measure } = chart.dataset;
    const first = !plot.data;
    Plotly.react(plot, buildTraces(measure), buildLayout(measure), { displayModeBar: false, responsive: true, showTips: false });
    if (first) plot.on("plotly_click", (event) => { const url = event.points[0].customdata; if (url) location.assign(url); });
  }
  for (const button of buttons) button.setAttribute("aria-pressed", String(!hidden.has(data[button.dataset.series].key)));
}

await plotlyLoaded;

for (const button of buttons) button.addEventListener("click", () => {
  const { key } = data[button.dataset.series];
  if (!hidden.delete(key)) hidden.add(key);
  const asked = new URLSearchParams(location.search);
  asked.delete("hide");
  for (const one of hidden) asked.append("hide", one);
  history.replaceState(null, "", location.pathname + (asked.size ? `?${asked}` : ""));
  drawChart();
});

document.addEventListener("lab:theme", drawChart);
drawChart();
