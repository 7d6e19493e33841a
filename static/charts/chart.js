/* One chart of the overview: its frame, legend, table, drawing and download. "page" is what all charts share (charts.js): the store, the
   settings, the hovered x, the shared x range and the acts that concern all charts. Metric names are only ever text nodes: Plotly gets no
   name to interpret, save the escaped ones of a download. */
import { formatNumber } from "../base/numbers.js";
import { addRoom, buildXRange, findChosenRange, findEnds, readChangedRange } from "./axes.js";
import { escapeMarkup, makeElement, readStyle } from "./elements.js";
import { makeReportLink } from "./report-link.js";
import { noteUndrawn } from "./series.js";
import { HELP, weighChart } from "./smoothing.js";
import { fillDataTable, makeTableBox } from "./table.js";

function makeTool(label, symbol, act) {
  const button = makeElement("button", "icon-button chart-tool", symbol);
  button.type = "button";
  button.title = label;
  button.setAttribute("aria-label", label);
  button.addEventListener("click", act);
  return button;
}

export class Chart {
  constructor(panel, page) {
    this.panel = panel;
    this.page = page;
    this.hidden = new Set(panel.traces.filter((trace) => trace.off).map((trace) => trace.metric));
    this.visible = false;
    this.figure = makeElement("figure", "card chart");
    this.figure.dataset.panel = panel.id;
    this.title = makeElement("figcaption", "chart-title");
    const name = makeElement("h3", "", panel.title);
    if (panel.help) name.title = panel.help;
    this.note = makeElement("span", "badge warn chart-note");
    this.note.hidden = true;
    this.tools = makeElement("span", "chart-tools");
    this.tableButton = makeTool(`Table of ${panel.title}`, "▤", () => this.toggleTable());
    this.tableButton.setAttribute("aria-pressed", "false");
    this.fullButton = makeTool(`Full screen: ${panel.title}`, "⤢", () => page.showFull(page.settings.full === panel.id ? "" : panel.id));
    this.tools.append(this.tableButton, makeTool(`Save ${panel.title} as PNG`, "PNG", () => this.savePng()), this.csvLink(), ...this.alertLink(), ...this.reportLink(), this.fullButton);
    this.title.append(name, makeElement("span", "muted small", panel.unit), this.note, this.tools);
    this.legend = makeElement("div", "chart-legend");
    this.plot = makeElement("div", "chart-plot");
    this.plot.setAttribute("aria-hidden", "true");
    this.cross = makeElement("div", "chart-cross");
    this.cross.hidden = true;
    this.pin = makeElement("div", "chart-pin");
    this.pin.hidden = true;
    this.blank = makeElement("p", "muted chart-blank");
    this.blank.hidden = true;
    this.table = makeTableBox(panel.title);
    this.area = makeElement("div", "chart-area");
    this.area.tabIndex = 0;
    this.area.setAttribute("role", "group");
    this.area.setAttribute("aria-label", `${panel.title}: arrow keys move the pinned step, Enter opens its rollouts`);
    this.area.addEventListener("keydown", (event) => this.press(event));
    this.area.append(this.plot, this.pin, this.cross, this.blank, this.table);
    this.figure.append(this.title, this.legend, this.area);
    this.fillLegend();
    this.said = makeElement("span", "legend-said");
    this.said.title = `Values beside the names are of that step, not smoothed. ${HELP}`;
    this.legend.append(this.said);
  }

  csvLink() {
    const link = makeElement("a", "icon-button chart-tool", "CSV");
    const query = new URLSearchParams(this.panel.metrics.map((metric) => ["name", metric]));
    link.href = `${this.page.csv}?${query}`;
    link.setAttribute("download", "");
    link.setAttribute("aria-label", `${this.panel.title} as CSV`);
    return link;
  }

  /* While the run trains: a rule that tells of the chart's first metric, prefilled. */
  alertLink() {
    if (!this.page.alert || !this.panel.metrics.length) return [];
    const link = makeElement("a", "icon-button chart-tool", "Alert");
    link.href = `${this.page.alert}&${new URLSearchParams({ metric: this.panel.metrics[0] })}`;
    link.title = `Notify me when ${this.panel.title} is above or below a number`;
    link.setAttribute("aria-label", link.title);
    return [link];
  }

  /* The chart as it is drawn now, for who may write reports; of several lines the first that shows. */
  reportLink() {
    if (!this.page.report || !this.panel.metrics.length) return [];
    const { settings } = this.page;
    const metric = () => this.metrics.find((name) => !this.hidden.has(name)) || this.panel.metrics[0];
    return [makeReportLink(this.page.report, this.panel.title, () => ({ metric: metric(), x: settings.x, smooth: settings.smooth, log: settings.log }))];
  }

  fillLegend() {
    this.entries = this.panel.traces.map((trace) => {
      const entry = makeElement("button", `legend-entry series-${trace.color}${trace.lead ? " lead" : ""}`);
      entry.type = "button";
      entry.title = trace.metric;
      entry.setAttribute("aria-pressed", String(!this.hidden.has(trace.metric)));
      const value = makeElement("span", "legend-value", "n/a");
      entry.append(makeElement("span", "swatch"), makeElement("span", "legend-label", trace.label), value);
      entry.addEventListener("click", () => {
        if (!this.hidden.delete(trace.metric)) this.hidden.add(trace.metric);
        entry.setAttribute("aria-pressed", String(!this.hidden.has(trace.metric)));
        this.page.redraw(this);
      });
      this.legend.append(entry);
      return value;
    });
  }

  get metrics() { return this.panel.traces.map((trace) => trace.metric); }

  /* Values at the hovered x, else at the pin, else the newest. */
  showValues() {
    const steps = new Set();
    this.panel.traces.forEach((trace, index) => {
      const one = this.page.store.series[trace.metric];
      const at = one ? (this.page.readX === null ? one.steps.length - 1 : this.nearest(one, this.page.readX)) : -1;
      if (at >= 0) steps.add(one.steps[at]);
      const words = at < 0 ? "n/a" : formatNumber(one.values[at]);
      if (this.entries[index].textContent !== words) this.entries[index].textContent = words;
    });
    const said = [steps.size === 1 ? `at step ${[...steps][0]}` : "", this.panel.said, this.weight ? `lines smoothed ${this.weight}` : ""].filter(Boolean).join(", ");
    if (this.said.textContent !== said) this.said.textContent = said;
    const sum = (counts) => this.panel.metrics.reduce((total, metric) => total + (counts[metric] || 0), 0);
    noteUndrawn(this.note, sum(this.page.store.nonfinite), sum(this.page.store.abstained));
    const blank = this.isBlank;
    this.figure.classList.toggle("blank", blank);
    this.blank.hidden = !blank;
    this.blank.textContent = !blank ? "" : this.page.open() ? "appears after the first step" : "not logged in this run";
  }

  nearest(one, x) {
    let [low, high] = [0, one.steps.length - 1];
    const at = (index) => this.page.store.x(one.steps[index], this.page.settings.x) ?? -Infinity;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at(middle) < x) low = middle + 1;
      else high = middle;
    }
    return low > 0 && x - at(low - 1) <= at(low) - x ? low - 1 : low;
  }

  showCross() {
    this.place(this.cross, this.page.hoverX);
    this.place(this.pin, this.page.pinX);
  }

  place(line, x) {
    const axis = this.plot._fullLayout && this.plot._fullLayout.xaxis;
    const at = axis?.type === "log" ? Math.log10(x) : x; // as the range is
    const inside = Boolean(axis) && x !== null && at >= axis.range[0] && at <= axis.range[1];
    line.hidden = !inside;
    if (inside) line.style.transform = `translateX(${axis._offset + axis.c2p(x)}px)`;
  }

  /* Left and right go through the steps this chart has points at; Home and End to its ends. */
  press(event) {
    if (event.target !== this.area || event.ctrlKey || event.metaKey || event.altKey) return;
    const one = this.metrics.map((metric) => this.page.store.series[metric]).find(Boolean);
    if (!one) return;
    const at = this.page.pinX === null ? one.steps.length - 1 : this.nearest(one, this.page.pinX);
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: one.steps.length - 1, Enter: at };
    if (!(event.key in moves)) return;
    event.preventDefault();
    event.stopPropagation();
    const step = one.steps[Math.min(one.steps.length - 1, Math.max(0, this.page.pinned === null && event.key === "ArrowLeft" ? at : moves[event.key]))];
    this.page.pick(this, this.page.store.x(step, this.page.settings.x), event.key === "Enter");
  }

  get isBlank() { return !this.panel.metrics.some((metric) => this.page.store.series[metric]); }

  draw() {
    if (this.isBlank && !this.listening) { this.showValues(); return; } // axes without a point say nothing
    this.width = this.plot.clientWidth; // measuring it is slower for Plotly than drawing the lines
    const { data, ends } = this.traces();
    Plotly.react(this.plot, data, this.layout(ends), { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false, showTips: false });
    if (!this.listening) {
      this.listening = true;
      this.plot.on("plotly_hover", (event) => this.page.hover(event.points[0].x));
      this.plot.on("plotly_click", (event) => this.page.pick(this, event.points[0].x, true));
      this.plot.on("plotly_unhover", () => this.page.hover(null));
      this.plot.on("plotly_relayout", (change) => {
        const [x, y] = ["x", "y"].map((name) => readChangedRange(this.plot, change, name));
        if (y) this.page.zoomChart(this.panel.id, y);
        if (x) this.page.zoomTo(x);
      });
      this.plot.on("plotly_doubleclick", () => this.page.zoomTo(null));
    }
    this.showValues();
    this.showCross();
    if (!this.table.hidden) this.fillTable();
  }

  layout(ends) { return { ...buildLayout(this.panel, this.page, ends), width: this.width }; }

  /* How much this chart's lines are smoothed; of lines that are shown. */
  weigh() {
    const shown = () => this.metrics.filter((metric) => !this.hidden.has(metric)).map((metric) => this.page.store.series[metric]?.values || []);
    this.weight = this.panel.points ? 0 : weighChart(this, this.page.settings.smooth, shown);
    return this.weight;
  }

  /* The raw lines lie below all smoothed ones, and the line that the others add up to lies on top: where it equals one of them it is seen. */
  traces() {
    const [raw, drawn] = [[], []];
    const shown = [];
    const weight = this.weigh();
    const smoothed = weight > 0;
    for (const trace of [...this.panel.traces].sort((one, other) => Boolean(one.lead) - Boolean(other.lead))) {
      const color = readStyle(`--series-${trace.color}`);
      const line = this.page.store.line(trace.metric, this.page.settings.x, weight);
      const width = trace.lead ? 3.2 : smoothed ? 2 : 1.6;
      const shared = { type: "scatter", x: line.x, hoverinfo: "none", connectgaps: false, visible: !this.hidden.has(trace.metric), showlegend: false };
      const dash = this.panel.points ? "dot" : trace.dashed ? "dash" : "solid";
      const lone = line.x.length < 3;
      raw.push({ ...shared, y: line.y, mode: this.panel.points || lone ? "lines+markers" : "lines", opacity: smoothed ? 0.28 : 1,
        line: { color, width: smoothed ? 1 : width, dash }, marker: { color, size: trace.lead ? 8 : 6 }, meta: smoothed ? "" : trace.label });
      if (smoothed) drawn.push({ ...shared, y: line.smooth, mode: "lines", line: { color, width, dash }, meta: trace.label });
      if (!this.hidden.has(trace.metric)) line.x.forEach((x, index) => {
        const y = line.y[index];
        if (y === null || (this.page.settings.zoom && (x < this.page.settings.zoom[0] || x > this.page.settings.zoom[1])) || (this.page.settings.log && y <= 0)) return;
        shown.push(y);
      });
    }
    return { data: [...raw, ...drawn], ends: findEnds(shown, this.page.settings.outliers) };
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.tableButton.setAttribute("aria-pressed", String(!this.table.hidden));
    if (!this.table.hidden) this.fillTable();
  }

  fillTable() {
    const known = this.metrics.map((metric) => {
      const one = this.page.store.series[metric];
      return new Map(one ? one.steps.map((step, index) => [step, one.values[index]]) : []);
    });
    const steps = [...new Set(known.flatMap((values) => [...values.keys()]))].sort((a, b) => b - a);
    const rows = steps.map((step) => [String(step), known.map((values) => (values.has(step) ? formatNumber(values.get(step)) : "n/a"))]);
    fillDataTable(this.table, { title: this.panel.title, heads: ["step", ...this.panel.traces.map((trace) => trace.label)], rows });
  }

  async savePng() {
    const { data, ends } = this.traces();
    const named = data.map((trace) => (trace.meta ? { ...trace, meta: "", name: escapeMarkup(trace.meta), showlegend: true } : trace));
    const drawn = { ...this.layout(ends), title: { text: escapeMarkup(this.panel.title) }, margin: { l: 60, r: 20, t: 50, b: 50 }, paper_bgcolor: readStyle("--surface"), width: 1200, height: 600 };
    const link = makeElement("a");
    link.href = await Plotly.toImage({ data: named, layout: drawn }, { format: "png", width: 1200, height: 600, scale: 2 });
    link.download = `${this.panel.id}.png`;
    link.click();
  }
}

function buildLayout(panel, page, ends) {
  const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), zeroline: false, linecolor: readStyle("--border"), automargin: false, ticklabeloverflow: "allow", tickfont: { size: 11 } };
  const words = { step: "step", time: "minutes", tokens: "tokens", samples: page.store.samples?.name };
  const y = { ...axis, automargin: true, type: page.settings.log ? "log" : "linear", nticks: 5, exponentformat: "SI", tickformat: panel.unit === "bytes" ? ".3~s" : "" };
  const chosen = findChosenRange(page.settings, panel.id);
  if (chosen) y.range = chosen;
  else if (ends[0] <= ends[1]) y.range = addRoom(page.settings.log ? ends.map(Math.log10) : ends);
  const x = { ...axis, title: { text: words[page.settings.x], standoff: 4, font: { size: 11 } }, showgrid: false, exponentformat: "SI", nticks: 6 };
  const settings = panel.kind === "histogram" ? { ...page.settings, logX: false } : page.settings;
  Object.assign(x, buildXRange(settings, page.extent, page.firstX));
  return {
    height: page.settings.full === panel.id ? Math.max(240, innerHeight - 190) : 200, autosize: false, margin: { l: 46, r: 10, t: 6, b: 34 }, dragmode: "zoom", hovermode: "x", hoverdistance: -1,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 }, showlegend: false,
    xaxis: x, yaxis: y, shapes: buildMarks(page), annotations: buildSigns(page, x.type === "log"), uirevision: "kept",
  };
}

/* A sign at the foot of the line of each alert and edit; pointing at it says what it was. */
const SIGNS = { alert: ["▲", "--bad"], edit: ["◆", "--accent"] };
function buildSigns(page, logarithmic) {
  return page.store.marks.flatMap((mark) => {
    const x = SIGNS[mark.kind] ? page.store.x(mark.step, page.settings.x) : undefined;
    if (x === undefined) return [];
    return [{ x: logarithmic ? Math.log10(x) : x, y: 0, xref: "x", yref: "paper", yanchor: "bottom", text: SIGNS[mark.kind][0], showarrow: false, font: { size: 9, color: readStyle(SIGNS[mark.kind][1]) }, hovertext: escapeMarkup(mark.label) }];
  });
}

function buildMarks(page) {
  const colors = { checkpoint: readStyle("--border-strong"), saved: readStyle("--good"), resume: readStyle("--warn"), alert: readStyle("--bad"), edit: readStyle("--accent") };
  return page.store.marks.flatMap((mark) => {
    const x = page.store.x(mark.step, page.settings.x);
    if (x === undefined) return [];
    return [{ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, layer: "below", opacity: mark.kind === "checkpoint" ? 0.5 : 0.8,
      line: { color: colors[mark.kind] || colors.checkpoint, width: 1, dash: { resume: "dash", saved: "solid", edit: "solid" }[mark.kind] || "dot" } }];
  });
}
