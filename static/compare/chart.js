/* One chart of a comparison: one metric, a line a run or a group. "page" (compare.js) holds what all charts share: settings, points, strands
   (what a line stands for), the x range and the hovered x. Names are text nodes; Plotly gets numbers and letters only. */
import * as lines from "./lines.js";
import { addRoom, buildXRange, findChosenRange, findEnds, readChangedRange } from "../charts/axes.js";
import { makeElement, readStyle } from "../charts/elements.js";
import { formatDuration, formatNumber } from "../base/numbers.js";
import { makeReportLink } from "../charts/report-link.js";
import { noteUndrawn } from "../charts/series.js";
import { plotlyLoaded } from "../charts/plotly.js";
import { HELP, weighChart } from "../charts/smoothing.js";
import { fillDataTable, makeTableBox } from "../charts/table.js";
import { saveCsv, savePng } from "./save.js";

await plotlyLoaded;

const HEIGHT = 230;
const MARGIN = { l: 48, r: 34, t: 6, b: 34 };
const LABEL = 11; // pixels of a label at the end of a line
const LABEL_WIDTH = 26;
const RAW_LINES = 8; // with more runs the raw lines behind the smoothed ones are only clutter, and half of the drawing

function makeTool(symbol, label, act) {
  const button = Object.assign(makeElement("button", "icon-button chart-tool", symbol), { type: "button", title: label });
  button.setAttribute("aria-label", label);
  button.addEventListener("click", act);
  return button;
}

export class CompareChart {
  constructor(chart, page) {
    this.chart = chart;
    this.page = page;
    this.visible = false;
    this.drawn = [];
    this.figure = makeElement("figure", "card chart compare-chart");
    this.figure.dataset.metric = chart.metric;
    const title = makeElement("figcaption", "chart-title");
    const name = makeElement("h3", "", chart.title);
    name.title = chart.metric;
    const few = chart.runs < page.runs.length ? makeElement("span", "badge", `${chart.runs} of ${page.runs.length} runs`) : "";
    this.note = makeElement("span", "badge warn");
    this.note.hidden = true;
    this.tableButton = makeTool("▤", `Table of ${chart.title}`, () => this.toggleTable());
    this.tableButton.setAttribute("aria-pressed", "false");
    const tools = makeElement("span", "chart-tools");
    tools.append(this.tableButton, makeTool("PNG", `Save ${chart.title} as PNG`, () => savePng(this)), makeTool("CSV", `Save ${chart.title} as CSV`, () => saveCsv(this)), ...this.reportLink());
    this.said = makeElement("p", "legend-said");
    this.said.title = HELP;
    title.append(name, makeElement("span", "muted small", chart.unit), few, this.note, tools);
    this.plot = makeElement("div", "chart-plot");
    this.plot.setAttribute("aria-hidden", "true");
    this.cross = makeElement("div", "chart-cross");
    this.cross.hidden = true;
    this.tip = makeElement("div", "compare-tip");
    this.tip.hidden = true;
    this.blank = makeElement("p", "muted chart-blank", "loading…");
    this.table = makeTableBox(chart.title);
    this.area = makeElement("div", "chart-area");
    this.area.append(this.plot, this.cross, this.tip, this.blank, this.table);
    this.figure.append(title, this.said, this.area);
    this.area.addEventListener("pointermove", (event) => this.pointed(event));
    this.area.addEventListener("pointerleave", () => this.page.hover(null, null));
  }

  /* The shown runs, for who may write reports. */
  reportLink() {
    if (!this.page.report) return [];
    const { settings } = this.page;
    const runs = () => this.page.strands().flatMap((strand) => strand.members).join(", ");
    return [makeReportLink(this.page.report, this.chart.title, () => ({ runs: runs(), metric: this.chart.metric, x: settings.x, smooth: settings.smooth, log: settings.log }))];
  }

  /* x under the pointer; only where the axes are drawn. */
  pointed(event) {
    const axis = this.plot._fullLayout && this.plot._fullLayout.xaxis;
    if (!axis || event.buttons || !this.table.hidden) return;
    const at = event.clientX - this.area.getBoundingClientRect().left - axis._offset;
    this.page.hover(at < 0 || at > axis._length ? null : axis.p2c(at), this);
  }

  draw() {
    const points = this.page.points(this.chart.metric);
    if (!points) return;
    const strands = this.page.strands();
    this.crowded = strands.length > RAW_LINES;
    this.weight = this.chart.points ? 0 : weighChart(this, this.page.settings.smooth, () => points.map((one) => one.values));
    this.said.textContent = this.weight ? `lines smoothed ${this.weight}` : "";
    this.drawn = strands.map((strand) => this.strand(strand, points)).filter((one) => one && one.y.some((y) => y !== null));
    this.blank.hidden = this.drawn.length > 0;
    const nowhere = points.some((one) => one.x && one.x.every((x) => x === null));
    this.blank.textContent = nowhere ? `no run that is shown has logged ${this.page.settings.x} with its steps` : "no run that is shown has this metric";
    this.plot.hidden = !this.drawn.length;
    noteUndrawn(this.note, points.reduce((sum, one) => sum + one.nonfinite, 0), points.reduce((sum, one) => sum + one.abstained, 0));
    if (!this.drawn.length) return;
    const range = this.range();
    Plotly.react(this.plot, [...this.drawn.flatMap((one) => this.band(one)), ...this.drawn.flatMap((one) => this.traces(one))], this.layout(range), { displayModeBar: false, responsive: false, doubleClick: false, showTips: false });
    if (!this.listening) {
      this.listening = true;
      this.plot.on("plotly_relayout", (change) => {
        const [x, y] = ["x", "y"].map((name) => readChangedRange(this.plot, change, name));
        if (y) this.page.zoomChart(this, y);
        if (x) this.page.zoomTo(x);
      });
      this.plot.on("plotly_doubleclick", () => this.page.zoomTo(null));
    }
    if (!this.table.hidden) this.fillTable();
  }

  /* What is drawn of a strand: {strand, x, y} with the raw line or the band behind it. */
  strand(strand, points) {
    const members = points.filter((one) => strand.members.includes(one.run));
    if (!members.length) return null;
    const { weight } = this;
    if (!strand.group) {
      const line = lines.buildLine(members[0], weight);
      return { strand, x: line.x, y: weight > 0 ? line.smooth : line.y, raw: weight > 0 && !this.crowded ? line.y : null };
    }
    const mean = lines.buildMean(members, weight, this.page.quantiles);
    return { strand, x: mean.x, y: mean.mean, mean };
  }

  /* Bands lie below all lines. */
  band(one) {
    if (!one.mean) return [];
    const faded = this.page.lit !== null && this.page.lit !== one.strand.id;
    const color = readStyle(`--series-${one.strand.color}`);
    const shape = lines.buildOutline(one.mean, this.page.settings.log ? 1e-12 : -Infinity);
    return [{ type: "scatter", hoverinfo: "skip", showlegend: false, ...shape, mode: "lines", fill: "toself", fillcolor: color, opacity: faded ? 0.04 : 0.15, line: { width: 0, color } }];
  }

  traces(one) {
    const { strand } = one;
    const color = readStyle(`--series-${strand.color}`);
    const shared = { type: "scatter", hoverinfo: "skip", connectgaps: false, showlegend: false, x: one.x };
    const faded = this.page.lit !== null && this.page.lit !== strand.id;
    const marked = this.chart.points || one.x.length < 3;
    const data = [];
    if (one.raw) data.push({ ...shared, y: one.raw, mode: "lines", opacity: faded ? 0.08 : 0.25, line: { color, width: 1 } });
    data.push({ ...shared, y: one.y, mode: marked ? "lines+markers" : "lines", opacity: faded ? 0.2 : 1, line: { color, width: faded ? 1.4 : 1.9, dash: strand.dash }, marker: { color, size: 5 } });
    return data;
  }

  /* What was chosen, else of what is shown. A band may widen it by the height of the lines on each side, not more: two seeds give bands that would
     flatten them. */
  range() {
    const { settings } = this.page;
    const chosen = findChosenRange(settings, this.chart.metric);
    if (chosen) return chosen;
    const drawn = findEnds(this.listShown((one) => [one.y, one.raw]), settings.outliers);
    if (drawn[0] > drawn[1]) return null;
    const band = settings.outliers ? [Infinity, -Infinity] : findEnds(this.listShown((one) => (one.mean ? [one.mean.low, one.mean.high] : [])), false);
    const scale = (y) => (settings.log ? Math.log10(y) : y);
    let [low, high] = drawn.map(scale);
    const tall = high - low || Math.abs(high) * 0.1 || 1;
    if (band[0] <= band[1]) [low, high] = [Math.max(Math.min(low, scale(band[0])), low - tall), Math.min(Math.max(high, scale(band[1])), high + tall)];
    return addRoom([low, high]);
  }

  /* The values that show, of the arrays that are picked of each line. */
  listShown(picked) {
    const { zoom, log } = this.page.settings;
    const found = [];
    for (const one of this.drawn) for (const ys of picked(one)) if (ys) for (const y of listShownValues(one.x, ys, zoom)) if (Number.isFinite(y) && (!log || y > 0)) found.push(y);
    return found;
  }

  xRange() { return buildXRange(this.page.settings, this.page.extent, this.page.firstX); }

  layout(range) {
    const { settings } = this.page;
    const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), zeroline: false, linecolor: readStyle("--border"), automargin: false, tickfont: { size: 11 } };
    const words = { step: "step", time: "minutes", tokens: "tokens", samples: "samples" };
    return {
      height: HEIGHT, autosize: true, margin: MARGIN, dragmode: "zoom", hovermode: false, showlegend: false, uirevision: "kept",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 },
      xaxis: { ...axis, title: { text: words[settings.x], standoff: 4, font: { size: 11 } }, showgrid: false, exponentformat: "SI", nticks: 6, ...this.xRange() },
      yaxis: { ...axis, automargin: true, type: settings.log ? "log" : "linear", nticks: 5, exponentformat: "SI", tickformat: this.chart.unit === "bytes" ? ".3~s" : "", ...(range ? { range } : {}) },
      annotations: range ? this.endLabels(range) : [],
    };
  }

  /* The short name of each line at its end, moved apart where they would cover each other. */
  endLabels([low, high]) {
    const { zoom, log, logX } = this.page.settings;
    const tall = HEIGHT - MARGIN.t - MARGIN.b;
    const labels = this.drawn.flatMap((one) => {
      let at = one.y.length - 1;
      while (at >= 0 && (one.y[at] === null || (zoom && one.x[at] > zoom[1]) || (log && one.y[at] <= 0))) at -= 1;
      if (at < 0) return [];
      const [x, value] = findEdge(one, at, zoom);
      if (zoom && x < zoom[0]) return [];
      const y = log ? Math.log10(value) : value;
      const wants = ((high - y) / (high - low)) * tall;
      return wants < 0 || wants > tall || (logX && x <= 0) ? [] : [{ one, x: logX ? Math.log10(x) : x, y, wants }]; // a line that leaves the picture has none
    });
    const span = this.xRange().range;
    const drawn = this.plot._fullLayout; // the left margin grows with the longest tick
    const wide = (this.plot.clientWidth || 400) - (drawn ? drawn._size.l : MARGIN.l) - MARGIN.r;
    for (const near of groupLabels(labels, (LABEL_WIDTH / wide) * (span[1] - span[0]))) moveLabelsApart(near, tall);
    return labels.map(({ one, x, y, wants, at }) => ({
      x, y, xanchor: "left", yanchor: "middle", xshift: 3, yshift: wants - at, showarrow: false, text: one.strand.short, captureevents: false,
      font: { size: 10, color: readStyle(`--series-${one.strand.color}`) }, opacity: this.page.lit !== null && this.page.lit !== one.strand.id ? 0.3 : 1,
    }));
  }

  /* The values of every line at the hovered x, largest first. */
  values(x) {
    return this.drawn.flatMap((one) => {
      const at = lines.findNearest(one.x, one.y, x, lines.measureSpacing(one.x.filter((place) => place !== null)) * 1.5);
      return at < 0 ? [] : [{ one, at, value: one.y[at] }];
    }).sort((a, b) => b.value - a.value);
  }

  showHover() {
    const axis = this.plot._fullLayout && this.plot._fullLayout.xaxis;
    const { hoverX, hovered } = this.page;
    const place = axis?.type === "log" && hoverX !== null ? Math.log10(hoverX) : hoverX; // as the range is
    const inside = axis && this.drawn.length > 0 && hoverX !== null && place >= axis.range[0] && place <= axis.range[1];
    this.cross.hidden = !inside;
    this.tip.hidden = !inside || hovered !== this;
    if (!inside) return;
    const left = axis._offset + axis.c2p(hoverX);
    this.cross.style.transform = `translateX(${left}px)`;
    if (hovered === this) this.fillTip(hoverX, left > axis._offset + axis._length / 2);
  }

  fillTip(x, atLeft) {
    const found = this.values(x);
    const list = makeElement("ul");
    for (const { one, at, value } of found) {
      const item = makeElement("li");
      const half = one.mean && one.mean.high[at] !== null ? ` ± ${formatNumber(one.mean.high[at] - value)}` : "";
      const count = one.mean ? `, n ${one.mean.n[at]}` : "";
      item.append(drawSwatch(one.strand), makeElement("span", "tip-name", one.strand.label), makeElement("strong", "", `${formatNumber(value)}${half}${count}`));
      list.append(item);
    }
    this.tip.replaceChildren(makeElement("p", "muted", formatPlace(x, this.page.settings.x) + (this.weight ? `, smoothed ${this.weight}` : "")), list);
    this.tip.classList.toggle("at-left", atLeft);
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.tableButton.setAttribute("aria-pressed", String(!this.table.hidden));
    if (!this.table.hidden) this.fillTable();
  }

  fillTable() {
    const known = this.drawn.map((one) => new Map(one.x.map((x, index) => [x, one.y[index]]).filter(([, y]) => y !== null)));
    const places = [...new Set(known.flatMap((values) => [...values.keys()]))].sort((a, b) => b - a);
    const rows = places.map((x) => [formatNumber(x), known.map((values) => (values.has(x) ? formatNumber(values.get(x)) : "n/a"))]);
    const said = this.weight ? `values smoothed ${this.weight}` : "";
    fillDataTable(this.table, { title: this.chart.title, said, heads: [this.page.settings.x, ...this.drawn.map((one) => one.strand.label)], rows });
  }
}

/* The values of a line inside the zoom, and those at its edges, where it comes in and goes out between two points. */
function* listShownValues(xs, ys, zoom) {
  for (let at = 0; at < xs.length; at += 1) {
    if (ys[at] === null) continue;
    if (!zoom || (xs[at] >= zoom[0] && xs[at] <= zoom[1])) yield ys[at];
    if (!zoom || at === 0 || ys[at - 1] === null) continue;
    for (const end of zoom) if (xs[at - 1] < end && end < xs[at]) yield ys[at - 1] + ((ys[at] - ys[at - 1]) * (end - xs[at - 1])) / (xs[at] - xs[at - 1]);
  }
}

/* Where a line leaves the picture: its last point, or the point of the zoom's edge on the way to the next one. */
function findEdge(one, at, zoom) {
  const [next, after] = [one.x[at + 1], one.y[at + 1]];
  if (!zoom || next === undefined || after === null || next <= zoom[1]) return [one.x[at], one.y[at]];
  return [zoom[1], one.y[at] + ((after - one.y[at]) * (zoom[1] - one.x[at])) / (next - one.x[at])];
}

/* Labels that could cover each other: those whose ends lie within reach along x. */
function groupLabels(labels, reach) {
  const found = [];
  for (const label of [...labels].sort((a, b) => a.x - b.x)) {
    const last = found.at(-1);
    if (last && label.x - last.at(-1).x < reach) last.push(label);
    else found.push([label]);
  }
  return found;
}

/* Gives each label a place of its own between 0 and tall, in the order of where they want to be. */
function moveLabelsApart(labels, tall) {
  labels.sort((a, b) => a.wants - b.wants);
  const apart = Math.min(LABEL, tall / labels.length);
  let floor = -Infinity;
  for (const label of labels) { label.at = Math.max(label.wants, floor + apart); floor = label.at; }
  let ceiling = tall;
  for (const label of labels.toReversed()) { label.at = Math.min(label.at, ceiling); ceiling = label.at - apart; }
}

function formatPlace(x, axis) {
  return axis === "step" ? `step ${Math.round(x)}` : axis === "time" ? `after ${formatDuration(x * 60)}` : `after ${formatNumber(x)} ${axis}`;
}

const SVG = "http://www.w3.org/2000/svg";
/* A piece of a strand's line, as the templates draw it for a run. */
export function drawSwatch(strand) {
  const image = document.createElementNS(SVG, "svg");
  image.setAttribute("class", `line-swatch series-${strand.color} ${strand.dash}`);
  image.setAttribute("viewBox", "0 0 28 8");
  image.setAttribute("aria-hidden", "true");
  const stroke = document.createElementNS(SVG, "line");
  for (const [name, value] of [["x1", 1], ["y1", 4], ["x2", 27], ["y2", 4]]) stroke.setAttribute(name, value);
  image.append(stroke);
  return image;
}
