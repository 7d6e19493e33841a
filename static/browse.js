/* The browser over rollouts: rows by keyboard, the control that adds a filter, histograms, and what the forms send along.
   Everything is looked up when it is needed, because htmx replaces the table and the filters. */
"use strict";
(function () {
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];

  /* Rows: j and k move, Enter opens, x ticks, space looks into it. */
  const rows = () => all("[data-row]");
  const KEPT = "lab-browse-row";  // whoever comes back from a rollout finds it highlighted
  let current = "";
  try { current = sessionStorage.getItem(KEPT) || ""; } catch (error) { /* no storage, no row */ }

  function highlight(row, focus = true) {
    for (const other of rows()) other.removeAttribute("aria-current");
    if (!row) return;
    row.setAttribute("aria-current", "true");
    current = row.dataset.row;
    try { sessionStorage.setItem(KEPT, current); } catch (error) { /* then the way back starts at no row */ }
    if (focus) row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
    if (!$("#preview").hidden) look(row);
  }

  function here() {
    return rows().find((row) => row.dataset.row === current) || null;
  }

  function move(by) {
    const list = rows();
    if (!list.length) return;
    const at = list.indexOf(here());
    const next = at < 0 ? (by > 0 ? 0 : list.length - 1) : at + by;
    if (next >= 0 && next < list.length) highlight(list[next]);
    else window.lab.announce(by > 0 ? "Last rollout of this page; J opens the next page" : "First rollout of this page");
  }

  function open(row) {
    if (row) location.assign(row.dataset.href);
  }

  function tick(row) {
    const box = row && $("input[name=id]", row);
    if (!box) return;
    box.checked = !box.checked;
    count();
  }

  window.lab.key("j", "Next rollout", () => move(1));
  window.lab.key("k", "Rollout before", () => move(-1));
  window.lab.key("x", "Tick the rollout", () => tick(here()));
  window.lab.key("f", "Search the completions", () => { const box = $("#browse-words"); if (box) { box.focus(); box.select(); } });
  document.addEventListener("keydown", (event) => {
    const row = event.target.closest && event.target.closest("[data-row]");
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, a, button, summary")) return;
    if (event.key === "Enter" && row) { event.preventDefault(); open(row); }
    if (event.key === " " && (row || here())) { event.preventDefault(); toggleLook(row || here()); }
    if (event.key === "Escape" && !$("#preview").hidden) closeLook();
  });

  document.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (row && !event.target.closest("a, input, button, label")) highlight(row, false);
    if (event.target.closest("[data-close-preview]")) closeLook();
  });
  document.addEventListener("dblclick", (event) => {
    const row = event.target.closest("[data-row]");
    if (row && !event.target.closest("a, input, button")) open(row);
  });

  /* A look into the highlighted rollout beside the table. */
  function toggleLook(row) {
    if (!$("#preview").hidden && current === row.dataset.row) { closeLook(); return; }
    $("#preview").hidden = false;
    document.body.classList.add("with-preview");
    highlight(row);
  }

  function closeLook() {
    $("#preview").hidden = true;
    document.body.classList.remove("with-preview");
    if (here()) here().focus({ preventScroll: true });
  }

  let looking = 0;
  async function look(row) {
    const asked = ++looking;
    try {
      const answer = await fetch(`/rollouts/preview/${row.dataset.row}/${new URL(row.dataset.href, location).search}`, { headers: { "X-Requested-With": "fetch" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const text = await answer.text();
      // Made by this lab's templates, which escape what models wrote; parsed, so that nothing in it runs.
      if (asked === looking) $("#preview").replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
    } catch (error) {
      if (asked === looking) $("#preview").textContent = "This rollout could not be loaded. Open it with Enter, or try again.";
    }
  }

  /* Ticks. */
  function count() {
    const ticked = all("input[name=id]:checked").length;
    for (const label of all("[data-ticked]")) label.textContent = ticked ? String(ticked) : "";
    for (const link of all("[data-export]")) link.href = exported(link);
    const compare = $("[data-compare]");
    const two = all("input[name=id]:checked").map((box) => box.value);
    if (compare) {
      compare.hidden = two.length !== 2;
      if (two.length === 2) compare.href = `${compare.dataset.compare}?a=${two[0]}&b=${two[1]}`;
    }
    const whole = $("[data-all]");
    if (whole) {
      const boxes = all("input[name=id]").length;
      whole.checked = ticked > 0 && ticked === boxes;
      whole.indeterminate = ticked > 0 && ticked < boxes;
    }
  }
  /* A file holds the ticked rollouts, or the whole selection when none is. */
  function exported(link) {
    const path = link.getAttribute("href").split("?")[0];
    const query = new URLSearchParams(location.search);
    for (const name of ["after", "id"]) query.delete(name);
    if (link.dataset.export) query.set(link.dataset.export, "1");
    for (const box of all("input[name=id]:checked")) query.append("id", box.value);
    return `${path}?${query}`;
  }

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-all]")) for (const box of all("input[name=id]")) box.checked = event.target.checked;
    if (event.target.matches("[data-all], input[name=id]")) count();
    if (event.target.matches("[data-add-field]")) adapt();
  });

  /* The control that adds a filter offers the operators and values of the chosen field. */
  const operatorLabels = new Map();
  function adapt(keep = false) {
    const field = $("[data-add-field]"), operator = $("[data-add-operator]");
    if (!field || !operator) return;
    if (!operatorLabels.size) for (const option of operator.options) operatorLabels.set(option.value, option.textContent);
    const chosen = field.selectedOptions[0];
    const offered = (chosen.dataset.operators || "").split(" ").filter(Boolean);
    const before = operator.value;
    const names = offered.length ? offered : [...operatorLabels.keys()];
    operator.replaceChildren(...names.map((name) => new Option(operatorLabels.get(name), name)));
    operator.value = names.includes(before) && keep ? before : names.includes("ge") ? "ge" : names[0];
    const help = $("[data-add-help]");
    if (help) help.textContent = chosen.dataset.help || "";
    value(chosen, keep);
  }

  function value(chosen, keep) {
    const old = $("[data-add-value]");
    const kind = chosen.dataset.kind;
    const choices = (chosen.dataset.choices || "").split("|").filter(Boolean).map((pair) => pair.split("="));
    const made = document.createElement(choices.length ? "select" : "input");
    for (const [name, label] of choices) made.append(new Option(label, name));
    made.id = "add-value";
    made.name = "value";
    made.dataset.addValue = "";
    if (kind === "number") made.inputMode = "decimal";
    if (chosen.value === "tag") made.setAttribute("list", "tag-names");
    made.autocomplete = "off";
    if (keep && old.value && !choices.length) made.value = old.value;
    if (keep && old.getAttribute("aria-invalid")) { made.setAttribute("aria-invalid", "true"); made.setAttribute("aria-describedby", "error-adding"); }
    old.replaceWith(made);
  }

  /* Forms that send the address along send the one that stands there now. */
  document.addEventListener("submit", (event) => {
    const query = $("[data-query]", event.target);
    if (query && $("#browser")) query.value = location.search;
    if (event.target.matches("[data-columns]")) event.target.action = event.target.getAttribute("action").split("?")[0] + location.search;
  }, true);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (link && link.closest(".menu-body")) for (const menu of all("details[data-menu][open]")) menu.open = false;
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches && event.target.matches("[data-adding]") && event.target.open) { adapt(true); $("[data-add-field]").focus(); }
    if (event.target.matches && event.target.matches("[data-tag-menu]") && event.target.open) {
      if (!all("input[name=id]:checked").length && here()) tick(here());
      $("#tag-name").focus();
    }
    if (event.target.matches && event.target.matches(".run-picker") && event.target.open) $("#run-find").focus();
  }, true);

  /* Histograms: a click keeps one bin, a drag a range. */
  let drag = null;
  const binAt = (event, svg) => {
    const bins = all(".bin", svg), box = svg.getBoundingClientRect();
    return bins[Math.max(0, Math.min(bins.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bins.length)))];
  };

  function paint() {
    const bins = all(".bin", drag.svg);
    const [low, high] = ends();
    bins.forEach((bin, at) => bin.classList.toggle("dragged", at >= low && at <= high));
    readout(drag.svg, bins[low], bins[high]);
  }

  function ends() {
    const bins = all(".bin", drag.svg);
    return [bins.indexOf(drag.from), bins.indexOf(drag.to)].sort((one, other) => one - other);
  }

  function readout(svg, first, last = first) {
    const label = svg.closest(".histogram").querySelector("[data-readout]");
    if (!label) return;
    label.textContent = !first ? "" : first === last ? $("title", first).textContent : `${short(first.dataset.lo)} to ${short(last.dataset.hi)}`;
  }
  const short = (text) => String(Number(Number(text).toPrecision(3)));

  document.addEventListener("pointerdown", (event) => {
    const svg = event.target.closest && event.target.closest(".histogram svg");
    if (!svg || event.button) return;
    event.preventDefault();
    drag = { svg, from: binAt(event, svg), to: binAt(event, svg) };
    svg.setPointerCapture(event.pointerId);
    paint();
  });
  document.addEventListener("pointermove", (event) => {
    const svg = event.target.closest && event.target.closest(".histogram svg");
    if (drag) { drag.to = binAt(event, drag.svg); paint(); } else if (svg) readout(svg, binAt(event, svg));
  });
  document.addEventListener("pointerout", (event) => {
    const svg = event.target.closest && event.target.closest(".histogram svg");
    if (svg && !drag && !svg.contains(event.relatedTarget)) readout(svg, null);
  });
  document.addEventListener("pointerup", () => {
    if (!drag) return;
    const bins = all(".bin", drag.svg), [low, high] = ends();
    keep(bins[low], bins[high]);
    for (const bin of bins) bin.classList.remove("dragged");
    drag = null;
  });
  document.addEventListener("pointercancel", () => { drag = null; });

  function keep(first, last) {
    const field = first.closest("[data-histogram]").dataset.histogram;
    go(field, [`${field}:ge:${first.dataset.lo}`, `${field}:${last.dataset.last ? "le" : "lt"}:${last.dataset.hi}`]);
  }

  /* The address as it stands, with other filters of one field. */
  function go(field, filters) {
    const query = new URLSearchParams(location.search);
    const others = query.getAll("f").filter((one) => !one.startsWith(`${field}:`));
    for (const name of ["f", "after"]) query.delete(name);
    for (const one of [...others, ...filters]) query.append("f", one);
    window.htmx.ajax("GET", `${location.pathname}?${query}`, { target: "#browser", swap: "outerHTML" });
  }

  document.addEventListener("click", (event) => {
    const bin = event.target.closest(".histogram .bin");
    const clear = event.target.closest(".histogram [data-clear]");
    if (!bin && !clear) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (clear) go(clear.closest("[data-histogram]").dataset.histogram, []);
    else if (event.detail === 0) keep(bin, bin);  // Enter; a pointer's click was dealt with when it was let go
  });
  document.addEventListener("keydown", (event) => {
    const bin = event.target.closest && event.target.closest(".histogram .bin");
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!bin || !by) return;
    event.preventDefault();
    const bins = all(".bin", bin.closest("svg"));
    const next = bins[bins.indexOf(bin) + by];
    if (!next) return;
    bin.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
    readout(bin.closest("svg"), next);
  });

  document.addEventListener("htmx:afterSettle", () => {
    count();
    adapt(true);
    if (here()) here().setAttribute("aria-current", "true");
  });
  document.addEventListener("DOMContentLoaded", () => {
    adapt(true);
    count();
    if (here()) here().setAttribute("aria-current", "true");
  });
})();
