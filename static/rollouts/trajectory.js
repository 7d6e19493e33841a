/* The page of one rollout: reads its tokens, keeps what the reader chose in the address and in the links of the keys, and joins text, chart and lists. */
import { announce, bindKey, showToast } from "../base/page.js";
import { tokenOverlays } from "./tokens.js";
import { tokenChart } from "./trajectory-chart.js";
import { describeRank, readRollout } from "./trajectory-data.js";
import { openFind } from "./trajectory-find.js";
import { fillForks } from "./trajectory-forks.js";
import { reader } from "./trajectory-reader.js";
import { completion } from "./trajectory-text.js";

const page = document.getElementById("trajectory");
const box = document.getElementById("text");
// In the address only where it differs: parameter → what is usual.
const USUAL = { mode: "", tokens: "", clip: "98", special: "", spaces: "", invisible: "1", ids: "", token: "", tokens_at: "" };
const ORDER = ["", "entropy", "logprob", "kl", "ratio", "sampler", "advantage", "weight", "mask"];

const asked = new URLSearchParams(location.search);
const state = Object.fromEntries(Object.entries(USUAL).map(([name, usual]) => [name, asked.get(name) ?? usual]));
if (!["", "text", "tokens"].includes(state.mode)) state.mode = "";
if (!ORDER.includes(state.tokens)) state.tokens = "";
if (!["90", "95", "98", "100"].includes(state.clip)) state.clip = "98";
const parseNumber = (text) => (/^\d{1,9}$/.test(text) ? Number(text) : null);
Object.assign(reader, {
  state: { get token() { return parseNumber(state.token); } },
  hover: hoverToken, pin: pinToken, choose: chooseTokens,
});
let data = null;
let hoverTimer = 0;
let anchor = null; // where a stretch chosen by keys began
let refused = ""; // an overlay that was asked for and is not there

/* The address and the links to other rollouts say what the reader sees now. */
function keepAddress() {
  const put = (url) => {
    for (const [name, usual] of Object.entries(USUAL)) {
      if (state[name] === usual) url.searchParams.delete(name);
      else url.searchParams.set(name, state[name]);
    }
    return url;
  };
  history.replaceState(null, "", put(new URL(location.href)));
  for (const link of document.querySelectorAll("a[data-way]")) link.href = put(new URL(link.href));
}

function changeState(changes) {
  Object.assign(state, changes);
  keepAddress();
  applyState();
}

function applyState() {
  if (!data) return;
  const overlay = state.tokens in data.reasons ? "" : state.tokens;
  completion.show({
    mode: state.mode, overlay, clip: Number(state.clip) / 100, special: state.special === "1", spaces: state.spaces === "1",
    invisible: state.invisible !== "0", ids: state.ids === "1" && state.mode === "tokens",
  });
  for (const name of ORDER) box.classList.toggle(`view-${name || "off"}`, name === overlay);
  for (const button of document.querySelectorAll("[data-choice] button")) button.setAttribute("aria-pressed", String(state[button.parentElement.dataset.choice] === button.value));
  for (const tick of document.querySelectorAll("[data-toggle]")) tick.checked = state[tick.dataset.toggle] === tick.value;
  document.getElementById("clip").value = state.clip;
  document.getElementById("clip").closest("label").hidden = !overlay || overlay === "mask";
  showLegend(overlay);
  tokenChart.use(overlay);
}

function showLegend(overlay) {
  const bar = document.getElementById("token-legend");
  const words = (text, className) => Object.assign(document.createElement("span"), { textContent: text, className });
  const why = refused || (state.tokens && data.reasons[state.tokens] ? state.tokens : "");
  const parts = [];
  if (why) parts.push(words(`${tokenOverlays.all[why].title}: ${data.reasons[why]}.`, "refused"));
  if (overlay) {
    parts.push(...tokenOverlays.legendParts(overlay, completion.scale, ""));
    if (tokenOverlays.all[overlay].signed) parts.push(words("underlined: below the middle", "muted"));
    if (overlay === "ratio" && data.clipped) parts.push(words("boxed", "unit clipped"), words("clipped: no gradient", "muted"));
    if (data.mask) parts.push(words("dimmed: not in the loss", "unit out"));
  }
  bar.replaceChildren(...parts);
  bar.parentElement.hidden = !parts.length;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-choice] button");
  if (button) {
    const name = button.parentElement.dataset.choice;
    refused = button.getAttribute("aria-disabled") === "true" ? button.value : "";
    if (refused) showLegend(state.tokens in data.reasons ? "" : state.tokens);
    else changeState({ [name]: button.value });
  }
});
document.addEventListener("change", (event) => {
  if (event.target.id === "clip") changeState({ clip: event.target.value });
  if (event.target.matches("[data-toggle]")) changeState({ [event.target.dataset.toggle]: event.target.checked ? event.target.value : event.target.dataset.off });
});
document.getElementById("copy-link").addEventListener("click", (event) => { event.currentTarget.dataset.copy = location.href; }, true);
document.getElementById("fold-all").addEventListener("click", foldAll);

function foldAll() {
  const open = completion.foldAll();
  if (open !== null) announce(open ? "Everything unfolded" : "Everything folded");
}

function cycleOverlay() {
  const offered = ORDER.filter((name) => !(name in data.reasons));
  refused = "";
  changeState({ tokens: offered[(offered.indexOf(state.tokens) + 1) % offered.length] });
  announce(state.tokens ? tokenOverlays.all[state.tokens].title : "Colours off");
}

/* Where the pointer is: on the chart it marks the token, on the text it moves the chart's cursor and shows the card. */
function hoverToken(position, from) {
  completion.unmark("active");
  tokenChart.hover(position);
  clearTimeout(hoverTimer);
  if (position === null) { tokenOverlays.hideCard(); return; }
  const unit = data.units[data.unitOf[position]];
  completion.mark(unit[1], unit[1] + unit[2], "active");
  if (from === "text") hoverTimer = setTimeout(() => showCard(position), 40);
}

function showCard(position) {
  const span = box.querySelector(`[data-first="${data.units[data.unitOf[position]][1]}"]`);
  if (!span) return;
  const rows = tokenOverlays.facts(data, data.units[data.unitOf[position]]);
  rows.push(["rank by entropy", describeRank(data, tokenOverlays.values(data, "entropy"), position)]);
  rows.push(["rank by −log-probability", describeRank(data, tokenOverlays.values(data, "logprob"), position)]);
  tokenOverlays.showFacts(span, rows, data, data.units[data.unitOf[position]]);
}

/* The token the reader stands on; it is in the address. null leaves it. */
function pinToken(position, { scroll = false, show = false } = {}) {
  completion.unmark("pinned");
  state.token = position === null || !data.total ? "" : String(Math.max(0, Math.min(data.total - 1, position)));
  keepAddress();
  const now = parseNumber(state.token);
  tokenChart.pin(now);
  document.dispatchEvent(new CustomEvent("token:pinned", { detail: now }));
  if (now === null) { tokenOverlays.hideCard(); return; }
  const unit = data.units[data.unitOf[now]];
  completion.mark(unit[1], unit[1] + unit[2], "pinned");
  if (scroll) completion.scrollTo(now);
  if (show) setTimeout(() => showCard(now), scroll ? 80 : 0);
}

/* A stretch of tokens [start, end), as the address and the annotations know it. */
function chooseTokens(range) {
  completion.unmark("chosen");
  state.tokens_at = range ? `${range[0]}-${range[1]}` : "";
  if (range) completion.mark(range[0], range[1], "chosen");
  tokenChart.choose(range);
  keepAddress();
  document.dispatchEvent(new CustomEvent("tokens:chosen", { detail: range && { start: range[0], end: range[1] } }));
}

box.addEventListener("pointerover", (event) => {
  const span = event.target.closest("[data-first]");
  if (data && data.total && span && Number(span.dataset.first) < data.total) hoverToken(Number(span.dataset.first), "text");
  else if (data) hoverToken(null, "text");
});
box.addEventListener("pointerleave", () => { if (data) hoverToken(null, "text"); });
box.addEventListener("click", (event) => {
  const span = event.target.closest("[data-first]");
  if (!span || !getSelection().isCollapsed || !data.total) return;
  pinToken(Math.min(data.total - 1, Number(span.dataset.first)));
});
/* Arrows go from token to token; with shift they choose a stretch. */
box.addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -1e9, End: 1e9 }[event.key];
  if (event.target !== box || !by || event.ctrlKey || event.metaKey || event.altKey || !data || !data.total) return;
  if (event.shiftKey && !getSelection().isCollapsed) return; // the browser's own selection grows
  event.preventDefault();
  const here = parseNumber(state.token);
  const unit = here === null ? -1 : data.unitOf[Math.min(here, data.total - 1)];
  const next = data.units[Math.max(0, Math.min(data.unitOf[data.total - 1], unit + by))];
  anchor = event.shiftKey ? anchor ?? here ?? next[1] : null;
  pinToken(next[1], { scroll: true, show: !event.shiftKey });
  if (event.shiftKey) {
    const from = data.units[data.unitOf[anchor]];
    chooseTokens([Math.min(from[1], next[1]), Math.max(from[1] + from[2], next[1] + next[2])]);
  }
  const overlay = tokenChart.view;
  const value = overlay ? tokenOverlays.unitValue(next, tokenOverlays.values(data, overlay)) : null;
  announce(`${tokenOverlays.visible(next[0], true)}${value === null ? "" : `, ${tokenOverlays.all[overlay].write(value)}`}`);
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !data || event.target.closest?.("input, textarea, select") || document.querySelector("dialog[open], details[data-menu][open]")) return;
  pinToken(null);
  chooseTokens(null);
});

bindKey("o", "Next overlay", () => data && cycleOverlay());
bindKey("f", "Find in the completion", () => openFind());
bindKey("z", "Fold or unfold everything", foldAll);
document.getElementById("find-open").addEventListener("click", () => openFind());

function disableMissingOverlays() {
  for (const button of document.querySelectorAll('[data-choice="tokens"] button')) {
    const why = data.reasons[button.value];
    if (!why) continue;
    button.setAttribute("aria-disabled", "true");
    button.title = why;
  }
}

async function startPage() {
  let body;
  try {
    const response = await fetch(page.dataset.packed);
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    body = await response.arrayBuffer();
  } catch (error) {
    showToast(`The tokens could not be loaded (${error.message}). The first part of the text is shown; reload the page to try again.`, "error", 0);
    return;
  }
  data = readRollout(body);
  if (data.error) {
    const banner = document.getElementById("no-tokens");
    banner.hidden = false;
    banner.querySelector("span").textContent = data.error === "this rollout came without tokens" ? "This rollout came without tokens: only its text can be shown." : `${data.error}. Its text is shown.`;
  }
  disableMissingOverlays();
  if (state.tokens in data.reasons) refused = state.tokens;
  completion.show({ mode: state.mode, special: state.special === "1", spaces: state.spaces === "1", invisible: state.invisible !== "0", ids: state.ids === "1" && state.mode === "tokens" });
  completion.put(data);
  document.getElementById("text-cut")?.remove();
  applyState();
  fillForks(data);
  page.dataset.ready = "1";
  const range = /^(\d{1,9})-(\d{1,9})$/.exec(state.tokens_at);
  const inside = range && Number(range[1]) < Number(range[2]) && Number(range[1]) < data.total;
  if (inside) chooseTokens([Number(range[1]), Math.min(data.total, Number(range[2]))]);
  else if (state.tokens_at) { state.tokens_at = ""; keepAddress(); }
  if (parseNumber(state.token) !== null && data.total) pinToken(parseNumber(state.token), { scroll: true });
  else if (inside) completion.scrollTo(Number(range[1]));
  keepAddress();
}

startPage();
