/* Human agreement with the reward: the run's reward above, below it the share of votes that put two answers in the reward's order, window by
   window with its interval. Names of reward functions stay in the page's own buttons; Plotly gets numbers only. */
import { fadeColor, readStyle } from "./elements.js";
import { picks } from "./picks.js";
import { plotlyLoaded } from "./plotly.js";

const HEIGHT = 250;

function formatPercent(value) { return `${Math.round(100 * value)} %`; }

class Figure {
  constructor(root) {
    Object.assign(this, { root, at: -1, data: null, listening: false });
    this.plot = root.querySelector("[data-plot]");
    this.said = root.querySelector("[data-said]");
    this.area = root.querySelector(".humans-area");
    this.area.addEventListener("keydown", (event) => this.press(event));
    new ResizeObserver(() => { if (this.listening) Plotly.Plots.resize(this.plot); }).observe(this.area); // also when a panel opens beside it
    root.querySelector(".humans-choice").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) this.choose(button.value);
    });
  }

  async load() {
    const response = await fetch(this.root.dataset.humans, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!response || !response.ok) { this.said.textContent = "The votes could not be loaded. Reload the page to try again."; return; }
    this.data = await response.json();
    await plotlyLoaded;
    this.choose(this.root.dataset.reward, false);
  }

  choose(name, chosen = true) {
    this.column = this.data.columns.find((column) => column.name === name) || this.data.columns[0];
    if (!this.column) return;
    for (const button of this.root.querySelectorAll(".humans-choice button")) button.setAttribute("aria-pressed", String(button.value === this.column.name));
    this.at = -1;
    this.draw();
    this.say();
    if (!chosen || !document.querySelector("[data-tab=humans]")) return;
    const query = new URLSearchParams(location.search);
    query.set("reward", name);
    history.replaceState(null, "", `${location.pathname}?${query}`);
  }

  draw() {
    const { steps, values } = this.data.curve;
    const { windows } = this.column;
    const [line, tone, warn] = [readStyle("--series-1"), readStyle("--series-2"), readStyle("--warn")];
    const wide = (one) => [one.first - 0.4, one.last + 0.4];
    const across = { x: [], y: [] };
    for (const one of windows) { across.x.push(...wide(one), null); across.y.push(one.value, one.value, null); }
    const shared = { type: "scatter", hoverinfo: "none", showlegend: false };
    const data = [
      { ...shared, x: steps, y: values, mode: values.length < 3 ? "lines+markers" : "lines", connectgaps: false, line: { color: line, width: 1.6 }, marker: { color: line, size: 5 }, yaxis: "y2" },
      { ...shared, ...across, mode: "lines", hoverinfo: "skip", line: { color: tone, width: 2 } },
      { ...shared, x: windows.map((one) => (one.first + one.last) / 2), y: windows.map((one) => one.value), mode: "markers",
        marker: { color: windows.map((one) => (one.since === null ? tone : warn)), symbol: windows.map((one) => (one.since === null ? "circle" : "diamond")), size: windows.map((one) => (one.since === null ? 8 : 12)) } },
    ];
    this.area.classList.toggle("bare", !steps.length);
    Plotly.react(this.plot, data, this.layout(this.shapes()), { displayModeBar: false, responsive: false, doubleClick: false, showTips: false });
    if (this.listening) return;
    this.listening = true;
    this.plot.on("plotly_hover", (event) => this.look(event.points[0].x));
    this.plot.on("plotly_click", (event) => { this.look(event.points[0].x); this.open(event.points[0].curveNumber ? null : event.points[0].x); });
  }

  /* Interval of each window, the one that is spoken of with an edge, and the line of one half. */
  shapes() {
    const boxes = this.column.windows.map((one, at) => {
      const color = readStyle(one.since === null ? "--series-2" : "--warn");
      return { type: "rect", layer: "below", x0: one.first - 0.4, x1: one.last + 0.4, y0: one.low, y1: one.high, fillcolor: fadeColor(color, at === this.at ? 0.3 : 0.18), line: { color, width: at === this.at ? 1.5 : 0 } };
    });
    return [...boxes, { type: "line", xref: "paper", x0: 0, x1: 1, y0: 0.5, y1: 0.5, layer: "below", line: { color: readStyle("--border-strong"), width: 1, dash: "dash" } }];
  }

  layout(shapes) {
    const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), zeroline: false, linecolor: readStyle("--border"), automargin: false, tickfont: { size: 11 }, fixedrange: true };
    const title = (text) => ({ text, standoff: 6, font: { size: 11 } });
    const { steps } = this.data.curve;
    const { windows } = this.column;
    const ends = [Math.min(...steps.slice(0, 1), ...windows.map((one) => one.first)), Math.max(...steps.slice(-1), ...windows.map((one) => one.last))];
    const room = Math.max(0.6, (ends[1] - ends[0]) * 0.015);
    const bare = !steps.length; // DPO and supervised runs have no reward curve
    return {
      height: bare ? Math.round(HEIGHT * 0.6) : HEIGHT, autosize: true, margin: { l: 58, r: 12, t: 8, b: 36 }, dragmode: false, hovermode: "closest", hoverdistance: 40, showlegend: false, shapes,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 },
      xaxis: { ...axis, title: title("step"), showgrid: false, anchor: "y", ...(ends[1] - ends[0] < 8 ? { dtick: 1 } : { nticks: 8 }), range: [ends[0] - room, ends[1] + room] },
      yaxis: { ...axis, domain: bare ? [0, 1] : [0, 0.5], range: [-0.02, 1.02], tickvals: [0, 0.25, 0.5, 0.75, 1], ticktext: ["0 %", "", "50 %", "", "100 %"], title: title("people agree") },
      yaxis2: { ...axis, automargin: true, visible: !bare, domain: [0.58, 1], anchor: "x", nticks: 4, title: title("reward") },
    };
  }

  /* The window at a step becomes the one that is spoken of. */
  look(x) {
    const { windows } = this.column;
    const distance = (one) => Math.max(one.first - x, x - one.last, 0);
    this.show(windows.length ? windows.reduce((best, one, at) => (distance(one) < distance(windows[best]) ? at : best), 0) : -1);
  }

  show(at) {
    if (at === this.at) return;
    this.at = at;
    Plotly.relayout(this.plot, { shapes: this.shapes() });
    this.say();
  }

  say() {
    const one = this.column.windows[this.at];
    const all = this.column;
    const left = [all.ties ? `${all.ties} scored alike` : "", all.missing ? `${all.missing} not scored` : ""].filter(Boolean).join(", ");
    if (!all.share.n) this.said.textContent = `No vote tells this reward apart${left ? `: ${left}` : ""}.`;
    else if (!one) this.said.textContent = `All steps: ${formatPercent(all.share.value)} agree (${formatPercent(all.share.low)} to ${formatPercent(all.share.high)}), ${all.share.n} votes${left ? `; left out: ${left}` : ""}. Point at a window for its numbers; a click opens its rollouts.`;
    else {
      const steps = one.first === one.last ? `Step ${one.first}` : `Steps ${one.first} to ${one.last}`;
      const gap = one.since === null ? "" : ` Higher reward and less agreement than up to step ${one.since}: evidence, not proof.`;
      this.said.textContent = `${steps}: ${formatPercent(one.value)} agree (${formatPercent(one.low)} to ${formatPercent(one.high)}), ${one.n} votes, ${one.disagreeing} against the reward${one.disagreeing ? `, most at step ${one.look}` : ""}.${gap}`;
    }
  }

  press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const last = this.column ? this.column.windows.length - 1 : -1;
    const moves = { ArrowLeft: Math.max(0, this.at - 1), ArrowRight: Math.min(last, this.at + 1), Home: 0, End: last };
    if (last < 0 || !(event.key in moves || event.key === "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === "Enter") { this.open(null); return; }
    this.show(moves[event.key]);
  }

  /* The rollouts of a step: beside the charts of an overview, else on their own page. Without a step: where the window disagrees most. */
  open(x) {
    const one = this.column.windows[this.at];
    const step = x === null ? one && one.look : Math.round(x);
    if (step === undefined) return;
    if (picks.show) picks.show(step, false, true, this.area);
    else location.assign(`${this.root.dataset.rollouts}?step=${step}`);
  }
}

let figure = null;
function startFigure() {
  const root = document.querySelector("[data-humans]");
  if (!root || (figure && figure.root === root)) return;
  figure = new Figure(root);
  figure.load();
}
document.addEventListener("htmx:afterSwap", startFigure);
document.addEventListener("lab:theme", () => { if (figure && figure.column) figure.draw(); });
startFigure();
