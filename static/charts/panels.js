/* Charts that methods declare (trainers/methods/card.py, Panel) beyond plain curves: a band, stacked shares, a histogram over the steps, phases.
   Everything comes from the declaration; nothing here knows a method. */
import { fadeColor, makeElement, readStyle } from "./elements.js";
import { formatNumber } from "../base/numbers.js";
import { Chart } from "./chart.js";

const COLUMNS = 240; // of a heat map; more steps are averaged
const SPANS = 300; // shaded stretches of a phase chart; a phase that flickers more than that is not shaded

function makeStillEntry(swatch, label) {
  const entry = makeElement("span", "legend-entry still");
  const value = makeElement("span", "legend-value");
  entry.append(swatch, makeElement("span", "legend-label", label), value);
  return { entry, value };
}

/* Index of the point nearest to the hovered or pinned x, else of the newest; -1 without points. */
function findPoint(chart, one) {
  if (!one || !one.steps.length) return -1;
  return chart.page.readX === null ? one.steps.length - 1 : chart.nearest(one, chart.page.readX);
}

class Lines extends Chart {
  fillLegend() {
    super.fillLegend();
    if (!this.panel.band) return;
    const swatch = makeElement("span", "swatch area series-1");
    this.band = makeStillEntry(swatch, "band");
    this.band.entry.title = this.panel.band.join(" to ");
    this.legend.append(this.band.entry);
  }

  showValues() {
    super.showValues();
    if (!this.band) return;
    const ends = this.panel.band.map((metric) => {
      const one = this.page.store.series[metric];
      const at = findPoint(this, one);
      return at < 0 ? "n/a" : formatNumber(one.values[at]);
    });
    this.band.value.textContent = ends.join(" to ");
  }

  traces() {
    const { data, ends } = super.traces();
    if (!this.panel.band) return { data, ends };
    const [low, high] = this.panel.band.map((metric) => this.page.store.line(metric, this.page.settings.x, 0));
    const shared = { type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "none", showlegend: false, connectgaps: true };
    if (!this.page.settings.outliers) for (const line of [low, high]) for (const y of line.y) if (y !== null && (!this.page.settings.log || y > 0)) { ends[0] = Math.min(ends[0], y); ends[1] = Math.max(ends[1], y); }
    // The band lies below the curves, so it is drawn first; its upper end is filled down to the lower one, which must come before it.
    return { data: [{ ...shared, x: low.x, y: low.y }, { ...shared, x: high.x, y: high.y, fill: "tonexty", fillcolor: fadeColor(readStyle("--series-1"), 0.16) }, ...data], ends };
  }
}

class Stacked extends Chart {
  traces() {
    const { x } = this.page.settings;
    const smooth = this.weigh();
    const sums = new Map();
    const data = this.panel.traces.map((trace) => {
      const line = this.page.store.line(trace.metric, x, smooth);
      const values = smooth > 0 ? line.smooth : line.y;
      const kept = line.x.map((at, index) => [at, values[index]]).filter(([, value]) => value !== null);
      const visible = !this.hidden.has(trace.metric);
      if (visible) for (const [at, value] of kept) sums.set(at, (sums.get(at) || 0) + value);
      const color = readStyle(`--series-${trace.color}`);
      return { type: "scatter", mode: "lines", stackgroup: "one", stackgaps: "interpolate", x: kept.map(([at]) => at), y: kept.map(([, value]) => value), visible,
        line: { color, width: 1 }, fillcolor: fadeColor(color, 0.5), hoverinfo: "none", showlegend: false, meta: trace.label };
    });
    return { data, ends: sums.size ? [0, Math.max(...sums.values())] : [Infinity, -Infinity] };
  }

  layout(ends) {
    const made = super.layout(ends);
    if (ends[0] <= ends[1]) Object.assign(made.yaxis, { type: "linear", fixedrange: true, range: [0, (ends[1] || 1) * 1.02] });
    return made;
  }
}

class Histogram extends Chart {
  get bins() { return this.panel.traces.length; }

  /* The middle of a bin: its value where the declaration gives the range, else its number. */
  middle(bin) {
    const { low, high } = this.panel;
    return low === null || high === null ? bin : low + ((high - low) * (bin + 0.5)) / this.bins;
  }

  fillLegend() {
    this.quantiles = [["10 %", 0.1], ["median", 0.5], ["90 %", 0.9]].map(([label, share]) => {
      const swatch = makeElement("span", share === 0.5 ? "swatch series-2" : "swatch");
      const { entry, value } = makeStillEntry(swatch, label);
      if (share !== 0.5) swatch.hidden = true;
      this.legend.append(entry);
      return { share, value };
    });
    this.entries = this.panel.traces.map(() => makeElement("span")); // values of single bins are in the table
  }

  showValues() {
    super.showValues();
    const columns = this.columns();
    const x = this.page.readX;
    const at = !columns.length ? null : x === null ? columns.at(-1) : columns.reduce((best, one) => (Math.abs(one.x - x) < Math.abs(best.x - x) ? one : best));
    for (const { share, value } of this.quantiles) value.textContent = at ? formatNumber(this.quantile(at.shares, share)) : "n/a";
  }

  quantile(shares, wanted) {
    const total = shares.reduce((sum, share) => sum + share, 0);
    let sum = 0;
    for (let bin = 0; bin < shares.length; bin += 1) {
      sum += shares[bin];
      if (sum >= wanted * total) return this.middle(bin);
    }
    return this.middle(shares.length - 1);
  }

  /* [{x, shares}] in order of x; steps that fall on one column are averaged, and a bin that was thinned away at a step counts nothing there. */
  columns() {
    const { series } = this.page.store;
    const all = this.panel.traces.map((trace) => series[trace.metric]).filter(Boolean);
    const steps = [...new Set(all.flatMap((one) => one.steps))].sort((a, b) => a - b);
    const newest = steps.length ? `${steps.length} ${steps.at(-1)} ${this.page.settings.x}` : "";
    if (this.kept && this.kept.newest === newest) return this.kept.columns;
    const place = new Map(steps.map((step, index) => [step, Math.floor(index / Math.max(1, steps.length / COLUMNS))]));
    const columns = [];
    for (const step of steps) {
      const x = this.page.store.x(step, this.page.settings.x);
      const column = (columns[place.get(step)] ||= { x: 0, count: 0, sums: new Array(this.bins).fill(0), counts: new Array(this.bins).fill(0) });
      if (x !== undefined) { column.x += x; column.count += 1; }
    }
    this.panel.traces.forEach((trace, bin) => {
      const one = series[trace.metric];
      if (one) one.steps.forEach((step, index) => {
        if (!Number.isFinite(one.values[index])) return;
        const column = columns[place.get(step)];
        column.sums[bin] += one.values[index];
        column.counts[bin] += 1;
      });
    });
    const made = columns.filter((column) => column.count).map((column) => ({ x: column.x / column.count, shares: column.sums.map((sum, bin) => (column.counts[bin] ? sum / column.counts[bin] : 0)) }));
    this.kept = { newest, columns: made };
    return made;
  }

  traces() {
    const columns = this.columns();
    const x = columns.map((column) => column.x);
    const y = this.panel.traces.map((trace, bin) => this.middle(bin));
    const z = y.map((_, bin) => columns.map((column) => column.shares[bin]));
    const color = readStyle("--series-1");
    const map = { type: "heatmap", x, y, z, zmin: 0, showscale: false, hoverinfo: "none", colorscale: [[0, fadeColor(color, 0)], [0.15, fadeColor(color, 0.3)], [1, color]] };
    const median = { type: "scatter", mode: "lines", x, y: columns.map((column) => this.quantile(column.shares, 0.5)), line: { color: readStyle("--series-2"), width: 1.6 }, hoverinfo: "none", showlegend: false };
    return { data: [map, median], ends: columns.length ? [y[0], y.at(-1)] : [Infinity, -Infinity] };
  }

  layout(ends) {
    const made = super.layout(ends);
    const half = (this.middle(1) - this.middle(0)) / 2;
    Object.assign(made.yaxis, { type: "linear", fixedrange: true, range: [this.middle(0) - half, this.middle(this.bins - 1) + half], showgrid: false });
    return made;
  }
}

class Phases extends Lines {
  fillLegend() {
    super.fillLegend();
    this.names = this.panel.phase_names.map((label, phase) => {
      const { entry } = makeStillEntry(makeElement("span", `swatch area series-${this.color(phase)}`), label);
      this.legend.append(entry);
      return entry;
    });
  }

  /* The other end of the palette, so that a phase is not taken for a curve. */
  color(phase) { return 8 - (phase % 8); }

  showValues() {
    super.showValues();
    const one = this.page.store.series[this.panel.phase];
    const at = findPoint(this, one);
    this.names.forEach((entry, phase) => entry.classList.toggle("now", at >= 0 && Math.round(one.values[at]) === phase));
  }

  /* Stretches of steps in one phase, each up to the start of the next. */
  spans() {
    const line = this.page.store.line(this.panel.phase, this.page.settings.x, 0);
    const spans = [];
    line.x.forEach((x, index) => {
      if (line.y[index] === null) return;
      const phase = Math.round(line.y[index]);
      const last = spans.at(-1);
      if (last) last.end = x;
      if (!last || last.phase !== phase) spans.push({ phase, start: x, end: x });
    });
    return spans.length > SPANS ? [] : spans;
  }

  layout(ends) {
    const made = super.layout(ends);
    const shaded = this.spans().map(({ phase, start, end }) => ({ type: "rect", xref: "x", yref: "paper", x0: start, x1: end, y0: 0, y1: 1, layer: "below",
      line: { width: 0 }, fillcolor: fadeColor(readStyle(`--series-${this.color(phase)}`), 0.2) }));
    return { ...made, shapes: [...shaded, ...made.shapes] };
  }
}

export const CHART_KINDS = { lines: Lines, stack: Stacked, histogram: Histogram, phases: Phases };
