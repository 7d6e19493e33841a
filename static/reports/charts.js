/* The charts of a report: each block is a chart of the comparison (compare/chart.js) with settings of its own, and its points come from the same
   address. In the editor's preview a chart whose block has not changed is kept, so that typing elsewhere does not draw it anew. */
import { CompareChart } from "../compare/chart.js";

export class ReportCharts {
  constructor(series) {
    this.series = series;
    this.known = new Map(); // block as JSON → ReportChart
    this.watcher = new IntersectionObserver((entries) => {
      for (const entry of entries) for (const one of this.known.values()) if (one.figure === entry.target) one.show(entry.isIntersecting);
    }, { rootMargin: "250px" });
    document.addEventListener("lab:theme", () => this.redraw());
    let width = innerWidth;
    window.addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; this.redraw(); } });
  }

  /* Puts a chart into every block below root that wants one, and forgets those that are no longer there. */
  mount(root) {
    const wanted = new Set();
    for (const place of root.querySelectorAll("[data-chart]")) {
      let key = place.parentElement.querySelector("script[type='application/json']").textContent;
      while (wanted.has(key)) key += " "; // the same block twice is two charts
      wanted.add(key);
      if (!this.known.has(key)) this.known.set(key, new ReportChart(JSON.parse(key), this.series));
      const one = this.known.get(key);
      place.replaceChildren(one.figure);
      place.setAttribute("aria-busy", "false");
      this.watcher.observe(one.figure);
    }
    for (const [key, one] of this.known) if (!wanted.has(key)) { this.watcher.unobserve(one.figure); this.known.delete(key); }
  }

  redraw() { for (const one of this.known.values()) one.draw(); }

  /* The runs of these numbers have moved on. */
  async refresh(numbers) {
    for (const one of this.known.values()) await one.refresh(numbers);
  }
}

class ReportChart {
  constructor(block, series) {
    this.block = block;
    this.address = series;
    this.points = null;
    this.extent = null;
    this.loading = null;
    const settings = { smooth: block.smooth, x: block.x, log: block.log, logX: false, outliers: false, zoom: null, ranges: {}, hidden: new Set(), by: [] };
    this.strands = block.runs.map((run) => ({ id: `#${run.number}`, short: `#${run.number}`, label: `#${run.number} ${run.name}`, color: run.color, dash: run.dash, members: [run.number] }));
    this.page = {
      runs: block.runs, quantiles: [], settings, lit: null, hoverX: null, hovered: null,
      points: () => this.points, strands: () => this.strands, extent: () => this.findExtent(), firstX: () => 1,
      hover: (x, chart) => { Object.assign(this.page, { hoverX: x, hovered: chart }); this.chart.showHover(); },
      zoomTo: (range) => { settings.zoom = range; if (!range) settings.ranges = {}; this.draw(); },
      zoomChart: (chart, range) => { settings.ranges[block.metric] = range; this.draw(); },
    };
    const about = { metric: block.metric, title: block.title, unit: block.unit, points: block.points, runs: block.runs.length };
    this.chart = new CompareChart(about, this.page);
    this.figure = this.chart.figure;
    const heading = this.figure.querySelector("h3"); // the text around it has headings of its own, and any order of them
    heading.replaceWith(Object.assign(document.createElement("strong"), { textContent: heading.textContent, title: heading.title }));
  }

  show(visible) {
    this.chart.visible = visible;
    if (!visible) return;
    if (this.points) this.draw();
    else this.load().catch(() => { this.chart.blank.textContent = "The points could not be loaded. Reload the page to try again."; });
  }

  /* One fetch at a time; who asks meanwhile waits for it. */
  load(numbers = this.block.runs.map((run) => run.number)) {
    this.loading ??= this.fetchPoints(numbers).finally(() => { this.loading = null; });
    return this.loading;
  }

  async fetchPoints(numbers) {
    const query = new URLSearchParams([...numbers.map((number) => ["run", number]), ["name", this.block.metric]]);
    if (this.block.x !== "step") query.set("x", this.block.x);
    const answer = await fetch(`${this.address}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const { series } = await answer.json();
    this.points = [...(this.points || []).filter((one) => !numbers.includes(one.run)), ...series[this.block.metric]];
    this.extent = null;
    this.draw();
  }

  async refresh(moved) {
    const numbers = this.block.runs.map((run) => run.number).filter((number) => moved.includes(number));
    if (!numbers.length) return;
    if (this.chart.visible) await this.load(this.points ? numbers : undefined);
    else this.points = null; // read when it is seen
  }

  draw() { if (this.chart.visible && this.points && this.figure.isConnected) this.chart.draw(); }

  findExtent() {
    if (this.extent) return this.extent;
    let [low, high] = [Infinity, -Infinity];
    for (const one of this.points || []) for (const x of one.x || one.steps) if (x !== null) { low = Math.min(low, x); high = Math.max(high, x); }
    if (low > high) return [0, 1];
    const room = (high - low || 1) * 0.015;
    this.extent = [low - room, high + room];
    return this.extent;
  }
}
