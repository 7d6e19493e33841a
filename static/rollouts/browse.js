/* The browser over rollouts: rows by keyboard, the control that adds a filter, what the forms send along, and news while runs train.
   Everything is looked up when it is needed, because htmx replaces the table and the filters. */
import { bindListKeys } from "../base/list-keys.js";
import { announce, bindKey } from "../base/page.js";
import { findPendingAddress, showPart } from "../base/parts.js";

const $ = (selector, from = document) => from.querySelector(selector);
const queryAll = (selector, from = document) => [...from.querySelectorAll(selector)];

/* Rows: j and k move, Enter opens, x ticks, space looks into it. */
const listRows = () => queryAll("[data-row]").filter((row) => row.checkVisibility()); // without those folded under an equal one
const KEPT = "lab-browse-row";  // whoever comes back from a rollout finds it highlighted
let current = "";
try { current = sessionStorage.getItem(KEPT) || ""; } catch { /* no storage, no row */ }

function highlightRow(row, focus = true) {
  for (const other of listRows()) other.removeAttribute("aria-current");
  if (!row) return;
  row.setAttribute("aria-current", "true");
  current = row.dataset.row;
  try { sessionStorage.setItem(KEPT, current); } catch { /* then the way back starts at no row */ }
  if (focus) row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
  if (!$("#preview").hidden) loadPreview(row);
}

function findRow() {
  return listRows().find((row) => row.dataset.row === current) || null;
}

function openRow(row) {
  if (row) location.assign(row.dataset.href);
}

function tickRow(row) {
  const box = row && $("input[name=id]", row);
  if (!box) return;
  box.checked = !box.checked;
  countTicks();
}

bindListKeys({
  items: listRows,
  next: ["j", "Next rollout"],
  before: ["k", "Rollout before"],
  findCurrent: findRow,
  show: (row) => highlightRow(row),
  passEnd: (by) => announce(by > 0 ? "Last rollout of this page; J opens the next page" : "First rollout of this page"),
});
bindKey("x", "Tick the rollout", () => tickRow(findRow()));
bindKey("f", "Search the completions", () => { const box = $("#browse-words"); if (box) { box.focus(); box.select(); } });
document.addEventListener("keydown", (event) => {
  const row = event.target.closest && event.target.closest("[data-row]");
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, a, button, summary")) return;
  if (event.key === "Enter" && row) { event.preventDefault(); openRow(row); }
  if (event.key === " " && (row || findRow())) { event.preventDefault(); togglePreview(row || findRow()); }
  if (event.key === "Escape" && !$("#preview").hidden) closePreview();
});

document.addEventListener("click", (event) => {
  const row = event.target.closest("[data-row]");
  if (row && !event.target.closest("a, input, button, label")) highlightRow(row, false);
  if (event.target.closest("[data-close-preview]")) closePreview();
});
document.addEventListener("dblclick", (event) => {
  const row = event.target.closest("[data-row]");
  if (row && !event.target.closest("a, input, button")) openRow(row);
});

/* A look into the highlighted rollout beside the table. */
function togglePreview(row) {
  if (!$("#preview").hidden && current === row.dataset.row) { closePreview(); return; }
  $("#preview").hidden = false;
  document.body.classList.add("with-preview");
  highlightRow(row);
}

function closePreview() {
  $("#preview").hidden = true;
  document.body.classList.remove("with-preview");
  if (findRow()) findRow().focus({ preventScroll: true });
}

let looking = 0;
async function loadPreview(row) {
  const asked = ++looking;
  try {
    const answer = await fetch(`${$("#preview").dataset.url.replace("/0/", `/${row.dataset.row}/`)}${new URL(row.dataset.href, location).search}`, { headers: { "X-Requested-With": "fetch" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const text = await answer.text();
    // Made by this lab's templates, which escape what models wrote; parsed, so that nothing in it runs.
    if (asked === looking) $("#preview").replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.childNodes);
  } catch {
    if (asked === looking) $("#preview").textContent = "This rollout could not be loaded. Open it with Enter, or try again.";
  }
}

/* Ticks. */
function countTicks() {
  const chosen = queryAll("input[name=id]:checked").map((box) => box.value);
  const ticked = chosen.length;
  for (const label of queryAll("[data-ticked]")) label.textContent = ticked ? String(ticked) : "";
  for (const link of queryAll("[data-export]")) link.href = buildExportAddress(link);
  const compare = $("[data-compare]");
  linkLabels(chosen);
  const similar = $("[data-similar]");
  if (similar) {
    similar.hidden = chosen.length !== 1;
    if (chosen.length === 1) similar.href = similar.dataset.similar.replace("/0/", `/${chosen[0]}/`);
  }
  if (compare) {
    compare.hidden = chosen.length !== 2;
    if (chosen.length === 2) compare.href = `${compare.dataset.compare}?a=${chosen[0]}&b=${chosen[1]}`;
  }
  const whole = $("[data-all]");
  if (whole) {
    const boxes = queryAll("input[name=id]").length;
    whole.checked = ticked > 0 && ticked === boxes;
    whole.indeterminate = ticked > 0 && ticked < boxes;
  }
}
/* The selection in the address, without the page and the rollouts that were named. */
function readSelection() {
  const query = new URLSearchParams(location.search);
  for (const name of ["after", "id"]) query.delete(name);
  return query;
}

/* A queue asks about the ticked rollouts, or about the whole selection when none is. */
function linkLabels(ticked) {
  const link = $("[data-label-link]");
  if (!link) return;
  const query = readSelection();
  if (ticked.length) query.append("f", `rollout:in:${ticked.join(",")}`);
  link.href = `${link.getAttribute("href").split("?")[0]}${query.size ? `?${query}` : ""}`;
  $("span", link).textContent = ticked.length ? `Label ${ticked.length} selected` : "Label these";
}

/* A file holds the ticked rollouts, or the whole selection when none is. */
function buildExportAddress(link) {
  const path = link.getAttribute("href").split("?")[0];
  const query = readSelection();
  if (link.dataset.export) query.set(link.dataset.export, "1");
  for (const box of queryAll("input[name=id]:checked")) query.append("id", box.value);
  return `${path}?${query}`;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) for (const box of queryAll("input[name=id]")) box.checked = event.target.checked;
  if (event.target.matches("[data-all], input[name=id]")) countTicks();
  if (event.target.matches("[data-add-field]")) adaptFilter();
});

/* The control that adds a filter offers the operators and values of the chosen field. */
const operatorLabels = new Map();
function adaptFilter(keep = false) {
  const field = $("[data-add-field]"), operator = $("[data-add-operator]");
  if (!field || !operator) return;
  if (!operatorLabels.size) for (const option of operator.options) operatorLabels.set(option.value, option.textContent);
  const chosen = field.selectedOptions[0];
  if (keep && operator.dataset.adapted === chosen.value) return;  // what is being typed stays in its field while another part of the page arrives
  operator.dataset.adapted = chosen.value;
  const offered = (chosen.dataset.operators || "").split(" ").filter(Boolean);
  const before = operator.value;
  const names = offered.length ? offered : [...operatorLabels.keys()];
  operator.replaceChildren(...names.map((name) => new Option(operatorLabels.get(name), name)));
  operator.value = names.includes(before) && keep ? before : names.includes("ge") ? "ge" : names[0];
  const help = $("[data-add-help]");
  if (help) help.textContent = chosen.dataset.help || "";
  replaceValueField(chosen, keep);
}

function replaceValueField(chosen, keep) {
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
  if (link && link.closest(".menu-body")) for (const menu of queryAll("details[data-menu][open]")) menu.open = false;
});
document.addEventListener("toggle", (event) => {
  if (event.target.matches && event.target.matches("[data-adding]") && event.target.open) { adaptFilter(true); $("[data-add-field]").focus(); }
  if (event.target.matches && event.target.matches("[data-tag-menu]") && event.target.open) {
    if (!queryAll("input[name=id]:checked").length && findRow()) tickRow(findRow());
    $("#tag-name").focus();
  }
  if (event.target.matches && event.target.matches(".run-picker") && event.target.open) $("#run-find").focus();
}, true);

/* While runs train: a pill says that there is more; nothing moves under the eyes of who reads. */
const EVERY = 10000;  // ms
setInterval(async () => {
  const browser = $("#browser"), pill = $("[data-show-new]");
  if (document.hidden || !browser || !browser.dataset.growing || !pill || !pill.hidden) return;
  try {
    const answer = await fetch(browser.dataset.growing + location.search);
    if (answer.ok && (await answer.json()).newest > Number(browser.dataset.newest)) pill.hidden = false;
  } catch { /* the lab is away; the next look may find it */ }
}, EVERY);
document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-show-new]")) return;
  const query = new URL(findPendingAddress("browser") ?? location.href, location.href).searchParams;
  query.delete("after");
  showPart("browser", `${location.pathname}?${query}`, { replaces: true });
});

/* The table has only the beginning of a long completion; how it ends is asked for once the table stands. */
async function showEnds() {
  const cut = queryAll("[data-ending]");
  if (!cut.length) return;
  const ids = cut.map((link) => link.dataset.ending);
  for (const link of cut) delete link.dataset.ending;  // asked for once
  const answer = await fetch(`${$("[data-ends]").dataset.ends}?ids=${ids.join(",")}`).catch(() => null);
  if (!answer || !answer.ok) return;  // then the table says how they begin
  const { ends } = await answer.json();
  for (const [at, link] of cut.entries()) if (ends[ids[at]]) addEnd(link, ends[ids[at]]);
}

function addEnd(link, text) {
  const make = (name, ...inside) => { const made = document.createElement("span"); made.className = name; made.append(...inside); return made; };
  link.replaceChildren(make("words-start", ...link.childNodes), make("words-end", make("", make("", text))));
}

document.addEventListener("htmx:afterSettle", () => {
  countTicks();
  adaptFilter(true);
  showEnds();
  if (findRow()) findRow().setAttribute("aria-current", "true");
});
document.addEventListener("DOMContentLoaded", () => {
  adaptFilter(true);
  showEnds();
  countTicks();
  if (findRow()) findRow().setAttribute("aria-current", "true");
});
