/* The overview's charts: panels come from the server, points from lab.Store, deltas from lab.live. Metric names are only ever text nodes:
   Plotly gets no name to interpret. */
"use strict";
(function () {
  const root = document.getElementById("overview");
  if (!root) return;

  const FRAME_MS = 250; // at most four drawings a second
  const MOST_POINTS = 8000; // of one metric; then the page asks for a thinned one
  const MARKS_MS = 60000;
  const box = document.getElementById("charts");
  const store = new lab.Store();
  const charts = new Map(); // panel id → Chart
  const dirty = new Set();
  const settings = readSettings();
  let hoverX = null;
  let marksAt = 0;

  function readSettings() {
    const query = new URLSearchParams(location.search);
    const zoom = (query.get("zoom") || "").split(",").map(Number);
    return {
      smooth: Math.min(0.999, Math.max(0, Number(query.get("smooth")) || 0)),
      x: ["step", "time", "tokens"].includes(query.get("x")) ? query.get("x") : "step",
      log: query.get("log") === "1",
      filter: (query.get("filter") || "").slice(0, 100),
      zoom: zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null,
      full: query.get("full") || "",
    };
  }

  function keepSettings() {
    const query = new URLSearchParams();
    if (settings.smooth) query.set("smooth", settings.smooth);
    if (settings.x !== "step") query.set("x", settings.x);
    if (settings.log) query.set("log", "1");
    if (settings.filter) query.set("filter", settings.filter);
    if (settings.zoom) query.set("zoom", settings.zoom.map((end) => Number(end.toPrecision(7))).join(","));
    if (settings.full) query.set("full", settings.full);
    history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
    document.getElementById("reset-zoom").hidden = !settings.zoom;
  }

  function element(tag, className = "", text = "") {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text) made.textContent = text;
    return made;
  }

  function tool(label, symbol, act) {
    const button = element("button", "icon-button chart-tool", symbol);
    button.type = "button";
    button.title = label;
    button.setAttribute("aria-label", label);
    button.addEventListener("click", act);
    return button;
  }

  class Chart {
    constructor(panel) {
      this.panel = panel;
      this.hidden = new Set();
      this.visible = false;
      this.figure = element("figure", "card chart");
      this.figure.dataset.panel = panel.id;
      this.title = element("figcaption", "chart-title");
      const name = element("h3", "", panel.title);
      if (panel.help) name.title = panel.help;
      this.note = element("span", "badge warn chart-note");
      this.note.hidden = true;
      this.tools = element("span", "chart-tools");
      this.tableButton = tool(`Table of ${panel.title}`, "▤", () => this.toggleTable());
      this.tableButton.setAttribute("aria-pressed", "false");
      this.fullButton = tool(`Full screen: ${panel.title}`, "⤢", () => showFull(settings.full === panel.id ? "" : panel.id));
      this.tools.append(this.tableButton, tool(`Save ${panel.title} as PNG`, "PNG", () => this.savePng()), this.csvLink(), this.fullButton);
      this.title.append(name, element("span", "muted small", panel.unit), this.note, this.tools);
      this.legend = element("div", "chart-legend");
      this.plot = element("div", "chart-plot");
      this.plot.setAttribute("aria-hidden", "true");
      this.cross = element("div", "chart-cross");
      this.cross.hidden = true;
      this.area = element("div", "chart-area");
      this.area.append(this.plot, this.cross);
      this.table = element("div", "scroll chart-table");
      this.table.hidden = true;
      this.figure.append(this.title, this.legend, this.area, this.table);
      this.fillLegend();
      watcher.observe(this.figure);
    }

    csvLink() {
      const link = element("a", "icon-button chart-tool", "CSV");
      const query = new URLSearchParams(this.panel.traces.map((trace) => ["name", trace.metric]));
      link.href = `${root.dataset.csv}?${query}`;
      link.setAttribute("download", "");
      link.setAttribute("aria-label", `${this.panel.title} as CSV`);
      return link;
    }

    fillLegend() {
      this.entries = this.panel.traces.map((trace) => {
        const entry = element("button", `legend-entry series-${trace.color}`);
        entry.type = "button";
        entry.title = trace.metric;
        entry.setAttribute("aria-pressed", "true");
        const value = element("span", "legend-value", "n/a");
        entry.append(element("span", "swatch"), element("span", "legend-label", trace.label), value);
        entry.addEventListener("click", () => {
          if (!this.hidden.delete(trace.metric)) this.hidden.add(trace.metric);
          entry.setAttribute("aria-pressed", String(!this.hidden.has(trace.metric)));
          redraw(this);
        });
        this.legend.append(entry);
        return value;
      });
    }

    get metrics() { return this.panel.traces.map((trace) => trace.metric); }

    /* Values at the hovered x, else the newest. */
    showValues() {
      this.panel.traces.forEach((trace, index) => {
        const one = store.series[trace.metric];
        const at = one ? (hoverX === null ? one.steps.length - 1 : this.nearest(one, hoverX)) : -1;
        const words = at < 0 ? "n/a" : lab.number(one.values[at]);
        if (this.entries[index].textContent !== words) this.entries[index].textContent = words;
      });
      const bad = this.metrics.reduce((sum, metric) => sum + (store.nonfinite[metric] || 0), 0);
      this.note.hidden = !bad;
      this.note.textContent = bad ? `${bad} NaN or infinite` : "";
    }

    nearest(one, x) {
      let [low, high] = [0, one.steps.length - 1];
      const at = (index) => store.x(one.steps[index], settings.x) ?? -Infinity;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (at(middle) < x) low = middle + 1;
        else high = middle;
      }
      return low > 0 && x - at(low - 1) <= at(low) - x ? low - 1 : low;
    }

    showCross() {
      const axis = this.plot._fullLayout && this.plot._fullLayout.xaxis;
      const inside = axis && hoverX !== null && hoverX >= axis.range[0] && hoverX <= axis.range[1];
      this.cross.hidden = !inside;
      if (inside) this.cross.style.transform = `translateX(${axis._offset + axis.c2p(hoverX)}px)`;
    }

    draw() {
      const { data, ends } = this.traces();
      Plotly.react(this.plot, data, layout(this.panel, ends), { displayModeBar: false, responsive: false, doubleClick: false, scrollZoom: false, showTips: false });
      if (!this.listening) {
        this.listening = true;
        this.plot.on("plotly_hover", (event) => hover(event.points[0].x));
        this.plot.on("plotly_unhover", () => hover(null));
        this.plot.on("plotly_relayout", (change) => {
          if ("xaxis.range[0]" in change) zoomTo([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
        });
        this.plot.on("plotly_doubleclick", () => zoomTo(null));
      }
      this.showValues();
      this.showCross();
      if (!this.table.hidden) this.fillTable();
    }

    traces() {
      const data = [];
      const ends = [Infinity, -Infinity];
      for (const trace of this.panel.traces) {
        const color = css(`--series-${trace.color}`);
        const line = store.line(trace.metric, settings.x, this.panel.points ? 0 : settings.smooth);
        const smoothed = settings.smooth > 0 && !this.panel.points;
        const shared = { type: "scatter", x: line.x, hoverinfo: "none", connectgaps: false, visible: !this.hidden.has(trace.metric), showlegend: false };
        const lone = line.x.length < 3;
        data.push({ ...shared, y: line.y, mode: this.panel.points || lone ? "lines+markers" : "lines", opacity: smoothed ? 0.28 : 1,
          line: { color, width: smoothed ? 1 : 1.6, dash: this.panel.points ? "dot" : "solid" }, marker: { color, size: 6 } });
        if (smoothed) data.push({ ...shared, y: line.smooth, mode: "lines", line: { color, width: 2 } });
        if (!this.hidden.has(trace.metric)) line.x.forEach((x, index) => {
          const y = line.y[index];
          if (y === null || (settings.zoom && (x < settings.zoom[0] || x > settings.zoom[1])) || (settings.log && y <= 0)) return;
          ends[0] = Math.min(ends[0], y);
          ends[1] = Math.max(ends[1], y);
        });
      }
      return { data, ends };
    }

    toggleTable() {
      this.table.hidden = !this.table.hidden;
      this.tableButton.setAttribute("aria-pressed", String(!this.table.hidden));
      if (!this.table.hidden) this.fillTable();
    }

    /* At most 100 of the steps, evenly, always with the newest. */
    fillTable() {
      const steps = [...new Set(this.metrics.flatMap((metric) => (store.series[metric] ? store.series[metric].steps : [])))].sort((a, b) => a - b);
      const every = Math.ceil(steps.length / 100) || 1;
      const shown = steps.filter((step, index) => (steps.length - 1 - index) % every === 0);
      const table = element("table", "table plain");
      table.append(element("caption", "visually-hidden", this.panel.title));
      const head = element("tr");
      for (const word of ["step", ...this.panel.traces.map((trace) => trace.label)]) head.append(Object.assign(element("th", "", word), { scope: "col" }));
      const body = element("tbody");
      for (const step of shown.reverse()) {
        const row = element("tr");
        row.append(Object.assign(element("th", "", String(step)), { scope: "row" }));
        for (const metric of this.metrics) {
          const one = store.series[metric];
          const index = one ? one.steps.indexOf(step) : -1;
          row.append(element("td", "", index < 0 ? "n/a" : lab.number(one.values[index])));
        }
        body.append(row);
      }
      table.append(element("thead"), body);
      table.tHead.append(head);
      this.table.replaceChildren(table);
    }

    async savePng() {
      const { data, ends } = this.traces();
      const named = data.filter((trace) => trace.opacity !== 0.28).map((trace, index) => ({ ...trace, name: inert(this.panel.traces[index].label), showlegend: true }));
      const drawn = { ...layout(this.panel, ends), title: { text: inert(this.panel.title) }, margin: { l: 60, r: 20, t: 50, b: 50 }, paper_bgcolor: css("--surface"), width: 1200, height: 600 };
      const link = element("a");
      link.href = await Plotly.toImage({ data: [...data.filter((trace) => trace.opacity === 0.28), ...named], layout: drawn }, { format: "png", width: 1200, height: 600, scale: 2 });
      link.download = `${this.panel.id}.png`;
      link.click();
    }
  }

  /* Plotly reads tags and entities in its texts; a name shows as it is written. */
  function inert(text) {
    return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  }

  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

  function layout(panel, ends) {
    const axis = { color: css("--muted"), gridcolor: css("--border"), zeroline: false, linecolor: css("--border"), automargin: false, tickfont: { size: 11 } };
    const words = { step: "step", time: "minutes", tokens: "tokens" };
    const y = { ...axis, type: settings.log ? "log" : "linear", fixedrange: true, nticks: 5, exponentformat: "SI", tickformat: panel.unit === "bytes" ? ".3~s" : "" };
    if (ends[0] <= ends[1]) {
      const [low, high] = settings.log ? ends.map(Math.log10) : ends;
      const room = (high - low || Math.abs(high) || 1) * 0.06;
      y.range = [low - room, high + room];
    }
    const x = { ...axis, title: { text: words[settings.x], standoff: 4, font: { size: 11 } }, showgrid: false, exponentformat: "SI", nticks: 6 };
    x.range = settings.zoom || extent();
    return {
      height: settings.full === panel.id ? Math.max(240, innerHeight - 190) : 200, autosize: true, margin: { l: 46, r: 10, t: 6, b: 34 }, dragmode: "zoom", hovermode: "x", hoverdistance: -1,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: css("--font"), color: css("--text"), size: 12 }, showlegend: false,
      xaxis: x, yaxis: y, shapes: marks(), uirevision: "kept",
    };
  }

  function showMarksKey() {
    const words = { checkpoint: "checkpoint", resume: "resumed", saved: "policy saved" };
    const there = Object.keys(words).filter((kind) => store.marks.some((mark) => mark.kind === kind));
    document.getElementById("marks-key").replaceChildren(...there.map((kind) => element("span", kind, words[kind])));
  }

  let wide = null;
  /* All charts share one x range, so that the same step lies at the same place everywhere. */
  function extent() {
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

  function marks() {
    const colors = { checkpoint: css("--border-strong"), saved: css("--good"), resume: css("--warn") };
    return store.marks.flatMap((mark) => {
      const x = store.x(mark.step, settings.x);
      if (x === undefined) return [];
      return [{ type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, layer: "below", opacity: mark.kind === "checkpoint" ? 0.5 : 0.8,
        line: { color: colors[mark.kind] || colors.checkpoint, width: 1, dash: { resume: "dash", saved: "solid" }[mark.kind] || "dot" } }];
    });
  }

  function hover(x) {
    hoverX = x;
    requestAnimationFrame(() => { for (const chart of charts.values()) if (chart.visible) { chart.showValues(); chart.showCross(); } });
  }

  function zoomTo(range) {
    settings.zoom = range;
    keepSettings();
    redrawAll();
  }

  function redraw(chart) { dirty.add(chart); schedule(); }
  function redrawAll() { wide = null; for (const chart of charts.values()) dirty.add(chart); schedule(); }

  let waiting = 0;
  let lastFrame = 0;
  let cost = 0;
  function schedule() {
    if (waiting || document.hidden) return;
    const pause = Math.max(0, lastFrame + Math.max(FRAME_MS, cost * 4) - performance.now());
    waiting = setTimeout(() => requestAnimationFrame(flush), pause);
  }

  function flush() {
    waiting = 0;
    if (document.hidden) return;
    lastFrame = performance.now();
    for (const chart of [...dirty]) {
      if (!chart.visible) continue;
      dirty.delete(chart);
      chart.draw();
    }
    cost = performance.now() - lastFrame;
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target.dataset.panel);
      if (chart) chart.visible = entry.isIntersecting;
    }
    schedule();
  }, { rootMargin: "200px" });

  /* Lays the panels out by section; a chart that is there stays, so that nothing flashes. */
  function arrange() {
    const wanted = new Map(store.panels.map((panel) => [panel.id, panel]));
    for (const [id, chart] of charts) {
      const panel = wanted.get(id);
      if (panel && JSON.stringify(panel.traces) === JSON.stringify(chart.panel.traces) && panel.title === chart.panel.title) continue;
      watcher.unobserve(chart.figure);
      if (chart.listening) Plotly.purge(chart.plot);
      chart.figure.remove();
      charts.delete(id);
      dirty.delete(chart);
    }
    const sections = new Map([...box.querySelectorAll("section")].map((section) => [section.dataset.section, section]));
    for (const panel of store.panels) {
      const name = panel.folded ? `${panel.section}+` : panel.section;
      if (!sections.has(name)) sections.set(name, makeSection(name, panel));
      if (!charts.has(panel.id)) charts.set(panel.id, new Chart(panel));
      const [section, figure] = [sections.get(name), charts.get(panel.id).figure];
      const grid = section.querySelector(".chart-grid");
      if (figure.parentElement !== grid) grid.append(figure);
    }
    const order = [...new Set(store.panels.filter((panel) => !panel.folded).map((panel) => panel.section)), ...new Set(store.panels.filter((panel) => panel.folded).map((panel) => `${panel.section}+`))];
    order.forEach((name, index) => { if (box.children[index] !== sections.get(name)) box.insertBefore(sections.get(name), box.children[index] || null); });
    for (const section of sections.values()) if (!section.querySelector("figure")) section.remove();
    filter();
  }

  function makeSection(name, panel) {
    const section = element("section", "chart-section");
    section.dataset.section = name;
    const grid = element("div", "chart-grid");
    if (panel.folded) {
      const fold = element("details", "fold");
      fold.append(element("summary", "", panel.section === "System" || panel.section === "Other" ? panel.section : `More: ${panel.section.toLowerCase()}`), grid);
      section.append(fold);
    } else section.append(element("h2", "", panel.section), grid);
    return section;
  }

  function filter() {
    const words = settings.filter.toLowerCase();
    for (const chart of charts.values()) {
      const text = [chart.panel.title, ...chart.panel.traces.flatMap((trace) => [trace.metric, trace.label])].join(" ").toLowerCase();
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
      dirty.add(chart);
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

  async function load() {
    const response = await fetch(root.dataset.metrics, { headers: { Accept: "application/json" } });
    if (!response.ok) throw new Error(response.status === 404 ? "This run is not there any more." : `The server answered ${response.status}.`);
    const snapshot = await response.json();
    store.load(snapshot);
    marksAt = Date.now();
    lab.live.apply(snapshot.state);
    arrange();
    showMarksKey();
    redrawAll();
    shown();
    return snapshot.cursor;
  }

  function shown() {
    box.setAttribute("aria-busy", "false");
    const message = document.getElementById("charts-loading");
    if (message) message.remove();
    document.getElementById("charts-error").hidden = true;
    document.getElementById("charts-empty").hidden = store.panels.length > 0;
    document.querySelector(".chart-bar").hidden = !store.panels.length;
  }

  async function begin() {
    try {
      lab.live.start(await load());
      if (settings.full) showFull(settings.full);
    } catch (error) {
      document.getElementById("charts-loading")?.remove();
      const failed = document.getElementById("charts-error");
      failed.hidden = false;
      failed.querySelector("p").textContent = error.message || "The lab cannot be reached.";
    }
  }

  let reloading = 0;
  function reload() {
    if (reloading) return;
    reloading = setTimeout(async () => {
      reloading = 0;
      try { await lab.live.reload(load); } catch (error) { reload(); }
    }, 300 + Math.random() * 700);
  }

  async function refreshMarks() {
    marksAt = Date.now();
    const response = await fetch(`${root.dataset.metrics}?part=marks`);
    if (!response.ok) return;
    store.marks = (await response.json()).marks;
    showMarksKey();
    redrawAll();
  }

  lab.live.on("delta", (delta) => {
    const changed = store.apply(delta);
    wide = null;
    const known = new Set(store.panels.flatMap((panel) => panel.traces.map((trace) => trace.metric)));
    if ([...changed].some((name) => !known.has(name)) || store.longest > MOST_POINTS) reload();
    if (changed.size) redrawAll();
    if (Date.now() - marksAt > MARKS_MS) refreshMarks();
  });
  lab.live.on("reset", () => reload());
  let status = "";
  lab.live.on("state", (state) => {
    if (status && status !== state.status) refreshMarks();
    status = state.status;
  });

  const slider = document.getElementById("smooth");
  const typed = document.getElementById("smooth-number");
  function smoothTo(value, from) {
    settings.smooth = Math.min(0.999, Math.max(0, Number(value) || 0));
    if (from !== slider) slider.value = settings.smooth;
    if (from !== typed) typed.value = settings.smooth;
    keepSettings();
    redrawAll();
  }
  for (const input of [slider, typed]) input.addEventListener("input", () => smoothTo(input.value, input));
  slider.value = typed.value = settings.smooth;

  const axis = document.querySelector("[data-setting=x]");
  function showAxis() { for (const button of axis.children) button.setAttribute("aria-pressed", String(button.value === settings.x)); }
  axis.addEventListener("click", (event) => {
    if (!event.target.value) return;
    Object.assign(settings, { x: event.target.value, zoom: null });
    showAxis();
    keepSettings();
    redrawAll();
  });
  showAxis();

  const log = document.getElementById("log-y");
  log.checked = settings.log;
  log.addEventListener("change", () => { settings.log = log.checked; keepSettings(); redrawAll(); });
  const search = document.getElementById("chart-filter");
  search.value = settings.filter;
  search.addEventListener("input", () => { settings.filter = search.value; filter(); keepSettings(); });
  document.getElementById("reset-zoom").addEventListener("click", () => zoomTo(null));
  document.getElementById("reset-zoom").hidden = !settings.zoom;
  document.getElementById("charts-retry").addEventListener("click", begin);
  document.addEventListener("lab:theme", redrawAll);
  document.addEventListener("visibilitychange", schedule);
  box.addEventListener("toggle", schedule, true);
  let width = innerWidth;
  window.addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redrawAll(); } });

  Object.defineProperty(lab, "series", { get: () => store.series });
  begin();
})();
