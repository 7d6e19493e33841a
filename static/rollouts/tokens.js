/* Tokens and what was measured on them. tokenOverlays: what tokens can be coloured by, on which scale, with legend and hover card, for every page
   that shows tokens. tokenCards: the cards of the feed, whose units come from the server and become spans by textContent. */
import { formatNumber } from "../base/numbers.js";
import { explainMissing, makeAlternatives } from "./alternatives.js";

const LEVELS = 10; // classes level-0 … level-9 of tokens.css
const ALL_AT_ONCE = 20_000; // tokens of one card
const SPECIAL = 1;
const ENVIRONMENT = 2;
const TORN = 4;
const INVISIBLE = /[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\ufff9-\ufffc\u{e0000}-\u{e0fff}]/gu;
const SPACES = /[ \n\t\r]/g;

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);
const measureEach = (data, measure, ...needed) => (needed.every((array) => array) ? Array.from(data.ids, (id, index) => (needed.some((array) => isMissing(array[index])) ? null : measure(index))) : null);
const formatNats = (value) => `${formatNumber(value)} nats`;
const formatFactor = (value) => `× ${formatNumber(Math.exp(value))}`;

/* values(data): one number or null a token, or null when the rollout has none. signed: neutral at 0, as are ratios in logarithms at × 1. */
const OVERLAYS = {
  entropy: { title: "Entropy", help: "of the distribution the token was drawn from", write: formatNats, values: (data) => data.entropies },
  logprob: { title: "−log-probability", help: "of the sampled token", write: formatNats, values: (data) => measureEach(data, (index) => -data.logprobs[index], data.logprobs) },
  kl: { title: "KL to the reference policy", help: "k3 estimate of each token, r − 1 − log r with r = reference / policy", write: formatNats, values: (data) => measureEach(data, (index) => estimateKl(data, index), data.reference, data.logprobs) },
  ratio: { title: "Importance ratio", help: "policy now / policy that sampled, in the last pass over the batch; logarithmic", signed: true, write: formatFactor, values: (data) => measureEach(data, (index) => Math.log(Math.max(data.ratios[index], 1e-4)), data.ratios) },
  sampler: { title: "Sampler mismatch", help: "trainer / sampler probability of the token, before the update; logarithmic", signed: true, write: formatFactor, values: (data) => measureEach(data, (index) => data.logprobs[index] - data.sampler[index], data.sampler, data.logprobs) },
  weight: { title: "Token weight", help: "what the methods multiply the token's policy gradient by; uncoloured: 1 for all", write: (value) => formatNumber(value), values: (data) => data.weights },
  advantage: { title: "Token advantage", help: "where a method gives tokens their own; uncoloured: the rollout's for all", signed: true, write: (value) => formatNumber(value), values: (data) => data.advantages },
  mask: { title: "Loss mask", help: "coloured: in the loss", binary: true, write: (value) => (value ? "in the loss" : "not in the loss"), values: (data) => data.mask },
};

function computeLogRatio(data, index) { return data.reference && !isMissing(data.reference[index]) && !isMissing(data.logprobs[index]) ? data.logprobs[index] - data.reference[index] : null; }

function estimateKl(data, index) {
  const log = data.reference[index] - data.logprobs[index];
  return Math.max(0, Math.exp(log) - log - 1); // numbers of 16 bits can leave it a hair below 0
}

const measured = new WeakMap(); // data → {overlay: values}

function readValues(data, name) {
  if (!measured.has(data)) measured.set(data, {});
  const kept = measured.get(data);
  if (!(name in kept)) kept[name] = OVERLAYS[name].values(data) || null;
  return kept[name];
}

/* Invisible characters by their code point unless ``invisible`` is false; white space as glyphs when asked. */
function writeVisible(text, spaces, invisible = true) {
  const named = !invisible ? text : text.replace(INVISIBLE, (character) => ("\n\t\r".includes(character) ? character : `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`));
  return spaces ? named.replace(SPACES, (character) => ({ " ": "·", "\n": "↵\n", "\t": "→\t", "\r": "␍" })[character]) : named;
}

/* The value a unit is coloured by: of several tokens that make one character the largest, whatever its sign. */
function findUnitValue(unit, values) {
  let largest = null;
  for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) {
    const value = values ? values[index] : null;
    if (!isMissing(value) && (largest === null || Math.abs(value) > Math.abs(largest))) largest = value;
  }
  return largest;
}

/* From zero to a percentile of the size of the policy's values in all of ``datas``: {top, level(value)}, with levels from −9 to 9. */
function buildScale(datas, name, share = 0.98) {
  const sizes = [];
  for (const data of datas) {
    const numbers = readValues(data, name);
    for (let index = 0; numbers && index < numbers.length; index += 1) if (!isMissing(numbers[index]) && (!data.mask || data.mask[index])) sizes.push(Math.abs(numbers[index]));
  }
  const sorted = Float64Array.from(sizes).sort();
  const top = (sorted.length && sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]) || sorted[sorted.length - 1] || 1;
  const { binary } = OVERLAYS[name];
  function level(value) {
    if (isMissing(value) || (binary && !value)) return null;
    if (binary) return 4;
    return Math.sign(value) * Math.min(LEVELS - 1, Math.floor((Math.abs(value) / top) * LEVELS));
  }
  return { top: binary ? 1 : top, level, share };
}

function nameLevel(level, value = level) { return level === null ? "" : `level-${Math.abs(level)}${value < 0 ? " negative" : ""}`; }

/* Title, what it is, and the ramp between its ends; ``where`` says of what the upper end is a percentile. */
function makeLegendParts(name, { top, share }, where) {
  const { title, help, signed, binary, write } = OVERLAYS[name];
  const words = (text, kind = "") => Object.assign(document.createElement("span"), { className: kind, textContent: text });
  const parts = [words(title, "legend-title"), words(help, "muted")];
  if (binary) return parts;
  const ramp = words("", `ramp view-${name}`);
  ramp.setAttribute("aria-hidden", "true");
  for (let level = signed ? -LEVELS + 1 : 0; level < LEVELS; level += 1) ramp.append(words("", `unit ${nameLevel(level)}`));
  const end = share < 1 ? `${write(top)}+` : write(top);
  parts.push(words(signed ? write(-top) : "0"), ramp, words(end.replace(/ (nats)\+$/, "+ $1")));
  if (where) parts.push(words(share < 1 ? `${Math.round(share * 100)}th percentile of ${where}` : `largest of ${where}`, "muted"));
  return parts;
}

const known = new WeakMap(); // card element → its data
const card = document.getElementById("token-card");
let whitespace = false;
let placed = null; // the span the card stands at, and where that was

function buildCard(article, data) {
  const box = article.querySelector("[data-units]");
  known.set(article, data);
  if (data.error) {
    box.replaceChildren(Object.assign(document.createElement("span"), { className: "muted", textContent: data.error }));
    return;
  }
  const nodes = document.createDocumentFragment();
  data.units.forEach((unit, index) => {
    const span = document.createElement("span");
    span.className = "unit";
    if (unit[3] & SPECIAL) span.classList.add("special");
    if (unit[3] & ENVIRONMENT || isMasked(data, unit)) span.classList.add("out");
    span.dataset.unit = index;
    nodes.append(span);
  });
  if (data.shown < data.total) nodes.append(makeMoreLink(article, data));
  box.replaceChildren(nodes);
  writeUnits(article);
}

/* What leads to the tokens that are not shown: all at once here, or, where that would be slow, the page of the rollout. */
function makeMoreLink(article, data) {
  const words = { className: "button small", textContent: `Show all ${data.total} tokens` };
  if (data.total > ALL_AT_ONCE) return Object.assign(document.createElement("a"), words, { href: article.dataset.tokens.replace(/tokens\/$/, "") });
  const button = Object.assign(document.createElement("button"), words, { type: "button" });
  button.dataset.allTokens = "";
  return button;
}

function isMasked(data, unit) {
  for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) if (data.mask[index]) return false;
  return unit[2] > 0;
}

function writeUnits(article) {
  const data = known.get(article);
  if (!data || data.error) return;
  for (const span of article.querySelectorAll("[data-unit]")) {
    const unit = data.units[span.dataset.unit];
    if (unit[3] & SPECIAL) { span.textContent = writeVisible(unit[0], false); span.hidden = !whitespace; }
    else if (unit[3] & TORN) span.textContent = `⟨${unit[2]} broken ${unit[2] === 1 ? "piece" : "pieces"}⟩`;
    else span.textContent = writeVisible(unit[0], whitespace);
  }
}

/* Colours all cards on one scale, from zero to the 98th percentile of the policy's tokens on the page; returns the scale. */
function colourCards(articles, view) {
  const shown = articles.filter((article) => known.has(article) && !known.get(article).error);
  const common = buildScale(shown.map((article) => known.get(article)), view);
  for (const article of shown) {
    const data = known.get(article);
    const numbers = readValues(data, view);
    for (const span of article.querySelectorAll("[data-unit]")) {
      const unit = data.units[span.dataset.unit];
      const value = span.classList.contains("out") ? null : findUnitValue(unit, numbers);
      const level = nameLevel(common.level(value), value);
      const wanted = `${span.className.replace(/ level-\d( negative)?/, "")}${level && ` ${level}`}`;
      if (span.className !== wanted) span.className = wanted;
    }
  }
  return common;
}

function showLegend(box, view, common) {
  const spaces = Object.assign(document.createElement("label"), { className: "check" });
  const tick = Object.assign(document.createElement("input"), { type: "checkbox", checked: whitespace, id: "show-whitespace" });
  spaces.append(tick, " White space and special tokens");
  const dimmed = Object.assign(document.createElement("span"), { className: "unit out", textContent: "dimmed: not in the loss" });
  box.replaceChildren(...makeLegendParts(view, common, "this page"), dimmed, spaces);
  box.hidden = false;
}

/* Everything known about the tokens of a unit, as [term, text] pairs. */
function listFacts(data, unit) {
  const rows = [["token", unit[3] & TORN ? "bytes that never became a character" : writeVisible(unit[0], true) || "(empty)"]];
  if (unit[2] > 1) rows.push(["pieces", `${unit[2]} tokens make it`]);
  const known = (array, index, write) => (!array || isMissing(array[index]) ? "n/a" : write(array[index]));
  for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) {
    rows.push(["id", `${data.ids[index]}  (position ${index})`]);
    rows.push(["log-probability", known(data.logprobs, index, formatNats)], ["probability", known(data.logprobs, index, (value) => formatPercent(Math.exp(value)))]);
    rows.push(["entropy", known(data.entropies, index, formatNats)]);
    if (data.reference) rows.push(["log policy / reference", known([computeLogRatio(data, index)], 0, formatNats)], ["KL, k3", known(readValues(data, "kl"), index, formatNats)]);
    if (data.sampler) rows.push(["trainer / sampler", known(readValues(data, "sampler"), index, (value) => `${formatFactor(value)} (${formatNats(value)})`)]);
    if (data.ratios) rows.push(["ratio", known(data.ratios, index, (value) => `× ${formatNumber(value)}`)]);
    if (data.clipped) rows.push(["clipped", data.clipped[index] ? "yes: no gradient" : "no"]);
    if (data.weights) rows.push(["weight", known(data.weights, index, formatNumber)]);
    if (data.advantages) rows.push(["advantage", known(data.advantages, index, formatNumber)]);
    if (data.trains !== false) rows.push(["in the loss", !data.mask || data.mask[index] ? "yes" : "no"]);
  }
  const why = explainMissing(data);
  if (why) rows.push(["alternatives", why]);
  return rows;
}

function showFacts(span, rows, data = null, unit = null) {
  const list = document.createElement("dl");
  for (const [term, text] of rows) list.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
  card.replaceChildren(list, ...(data && unit ? makeAlternatives(data, unit, { visible: writeVisible, percent: formatPercent }) : []));
  card.hidden = false;
  const at = span.getClientRects()[0] || span.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8));
  placed = { span, top: at.top };
  const below = at.bottom + 6 + card.offsetHeight < innerHeight;
  card.style.transform = `translate(${left}px, ${below ? at.bottom + 6 : Math.max(8, at.top - card.offsetHeight - 6)}px)`;
}

function showCard(span) {
  const data = known.get(span.closest("[data-rollout]"));
  const unit = data.units[span.dataset.unit];
  showFacts(span, listFacts(data, unit), data, unit);
}

function formatPercent(share) { return share === 0 ? "0 %" : share >= 0.0001 ? `${(share * 100).toFixed(share > 0.1 ? 1 : 2)} %` : share.toExponential(1); }

function hideCard() { if (card) card.hidden = true; }

function moveToken(box, by) {
  const spans = [...box.querySelectorAll("[data-unit]:not([hidden])")];
  const current = spans.findIndex((span) => span.classList.contains("active"));
  const next = spans[Math.min(spans.length - 1, Math.max(0, current + by))];
  if (!next) return;
  if (current >= 0) spans[current].classList.remove("active");
  next.classList.add("active");
  next.scrollIntoView({ block: "nearest" });
  showCard(next);
}

document.addEventListener("mouseover", (event) => {
  const span = event.target.closest && event.target.closest("[data-unit]");
  if (span) showCard(span);
  else if (!event.target.closest?.("#token-card, #text")) hideCard();
});
/* The event of a scroll comes after it: a card that was shown meanwhile, where its token came to rest, stays. */
document.addEventListener("scroll", () => {
  if (card && !card.hidden && placed && placed.span.isConnected && Math.abs((placed.span.getClientRects()[0] || placed.span.getBoundingClientRect()).top - placed.top) < 1) return;
  hideCard();
}, { passive: true });
document.addEventListener("focusin", (event) => { if (event.target.matches("[data-units]")) moveToken(event.target, 0); });
document.addEventListener("focusout", (event) => {
  if (!event.target.matches("[data-units]")) return;
  event.target.querySelector(".active")?.classList.remove("active");
  hideCard();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hideCard();
  if (!event.target.matches?.("[data-units]")) return;
  const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -1e9, End: 1e9 }[event.key];
  if (!by) return;
  event.preventDefault();
  moveToken(event.target, by);
});

export const tokenOverlays = { all: OVERLAYS, LEVELS, SPECIAL, ENVIRONMENT, TORN, missing: isMissing, visible: writeVisible, values: readValues, unitValue: findUnitValue, scale: buildScale, levelClass: nameLevel, legendParts: makeLegendParts, facts: listFacts, showFacts, hideCard, percent: formatPercent };
export const tokenCards = { views: Object.keys(OVERLAYS), build: buildCard, colour: colourCards, legend: showLegend, hideCard, has: (article) => known.has(article), showWhitespace(shown) { whitespace = shown; for (const article of document.querySelectorAll("[data-rollout]")) writeUnits(article); } };
