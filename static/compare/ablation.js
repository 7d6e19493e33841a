/* The dots of an ablation: one chart a quantity, one line a variant, one dot a seed; a click on a dot opens its run. The figures come with the
   polled part of the page; the charts stand outside it and are drawn again only when a figure changed. */
import { escapeMarkup, makeElement, readStyle } from "../charts/elements.js";
import { plotlyLoaded } from "../charts/plotly.js";

const box = document.getElementById("ablation-charts");
const ROW = 34; // pixels of a variant
const charts = new Map(); // key of a quantity → {figure, plot}
let drawn = "";

function drawCharts(again = false) {
  const source = document.getElementById("ablation-data");
  if (!source || (source.textContent === drawn && !again)) return;
  drawn = source.textContent;
  const quantities = JSON.parse(drawn).filter((quantity) => quantity.variants.some((variant) => variant.dots.length));
  box.hidden = !quantities.length;
  for (const [key, { figure, plot }] of charts) {
    if (quantities.some((quantity) => quantity.key === key)) continue;
    Plotly.purge(plot);
    figure.remove();
    charts.delete(key);
  }
  for (const quantity of quantities) {
    if (!charts.has(quantity.key)) charts.set(quantity.key, makeFigure(quantity));
    const { plot } = charts.get(quantity.key);
    Plotly.react(plot, quantity.variants.flatMap(buildTraces), buildLayout(quantity), { displayModeBar: false, responsive: true, doubleClick: false, showTips: false });
    if (plot.dataset.listening) continue;
    plot.dataset.listening = "1";
    plot.on("plotly_click", (event) => { const { url } = event.points[0].customdata || {}; if (url) location.assign(url); });
    plot.on("plotly_hover", (event) => plot.classList.toggle("points-at", Boolean(event.points[0].customdata)));
    plot.on("plotly_unhover", () => plot.classList.remove("points-at"));
  }
}

function makeFigure(quantity) {
  const figure = makeElement("figure", "card");
  figure.dataset.quantity = quantity.key;
  const title = makeElement("figcaption", "chart-title");
  title.append(makeElement("h3", "", quantity.label), makeElement("span", "muted small", quantity.unit ? ` ${quantity.unit}` : ""));
  const plot = makeElement("div", "plot");
  figure.append(title, plot);
  box.append(figure);
  return { figure, plot };
}

function buildTraces(variant) {
  const color = readStyle(`--series-${variant.color}`);
  const name = escapeMarkup(variant.name);
  const dots = {
    type: "scatter", mode: "markers", x: variant.dots.map((dot) => dot.value), y: variant.dots.map(() => name), customdata: variant.dots, showlegend: false,
    marker: { color, size: 9, opacity: 0.75, line: { color: readStyle("--surface"), width: 1 } }, hovertemplate: "%{x:.4g}, seed %{customdata.seed}, run #%{customdata.run}<extra></extra>",
  };
  if (variant.mean === null) return [dots];
  const mean = {
    type: "scatter", mode: "markers", x: [variant.mean], y: [name], showlegend: false, hoverinfo: "skip",
    marker: { color: readStyle("--text"), symbol: "line-ns-open", size: 16, line: { width: 2 } },
    error_x: { type: "constant", value: variant.half || 0, visible: variant.half !== null, color: readStyle("--text"), thickness: 1.4, width: 5 },
  };
  return [mean, dots];
}

function buildLayout(quantity) {
  const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), zeroline: false, fixedrange: true, tickfont: { size: 11 } };
  const names = quantity.variants.map((variant) => escapeMarkup(variant.name));
  return {
    height: quantity.variants.length * ROW + 44, margin: { l: 10, r: 14, t: 6, b: 28 }, hovermode: "closest", dragmode: false, showlegend: false,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 },
    hoverlabel: { bgcolor: readStyle("--surface"), bordercolor: readStyle("--border-strong"), font: { color: readStyle("--text") } },
    xaxis: { ...axis, nticks: 6 }, yaxis: { ...axis, type: "category", categoryorder: "array", categoryarray: names.toReversed(), range: [-0.6, names.length - 0.4], automargin: true, showgrid: false },
  };
}

await plotlyLoaded;
document.addEventListener("htmx:afterSettle", () => drawCharts());
document.addEventListener("lab:theme", () => drawCharts(true));
drawCharts();
