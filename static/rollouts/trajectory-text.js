/* The completion on the page: blocks by author, cut into chunks that are spans of tokens near the viewport and one text node elsewhere, so that
   200,000 tokens cost no more than a few screens. Everything a model wrote is a text node. */
import { tokenOverlays } from "./tokens.js";
import { findUnitEnd, isInLoss } from "./trajectory-data.js";

const { SPECIAL, ENVIRONMENT, TORN } = tokenOverlays;
const CHUNK = 120; // units, then the next line break ends the chunk
const CHUNK_MOST = 700;
const BUDGET = 8; // ms of a frame for filling; the rest waits for the next one
const CHUNK_TEXT = 8000; // characters
const FOLD_FROM = 600;
const NEAR = "900px"; // filled before it is seen

const box = document.getElementById("text");
let data = null;
let shown = { mode: "", spaces: false, special: false, invisible: true, ids: false, overlay: "" };
let scale = null;
let chunks = []; // {element, first unit, end unit, filled}
let chunkOf = new Uint32Array(0); // unit → chunk
let marks = []; // {start, end, className}
let watcher = null;
const waiting = new Set(); // chunks that came near and have no spans yet
let pumping = false;

const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

/* What stands on the page for a unit. In raw tokens a line break follows its box instead of breaking it. */
function writeUnit(unit) {
  if (unit[3] & SPECIAL) return shown.special || shown.mode === "tokens" ? tokenOverlays.visible(unit[0], false) : "";
  if (unit[3] & TORN) return `⟨${unit[2]} broken ${unit[2] === 1 ? "piece" : "pieces"}⟩`;
  if (shown.mode === "tokens") return tokenOverlays.visible(unit[0], false, shown.invisible).replace(/[\n\r\t]/g, (one) => ({ "\n": "↵", "\r": "␍", "\t": "→" })[one]).replace(/ /g, shown.spaces ? "·" : " ");
  return tokenOverlays.visible(unit[0], shown.spaces, shown.invisible);
}

function findBreak(unit) { return shown.mode === "tokens" && !(unit[3] & SPECIAL) && unit[0].includes("\n") ? "\n" : ""; }

function buildText(next) {
  data = next;
  if (watcher) watcher.disconnect();
  waiting.clear();
  watcher = new IntersectionObserver(noticeVisible, { rootMargin: `${NEAR} 0px` });
  chunks = [];
  chunkOf = new Uint32Array(data.units.length);
  const parts = document.createDocumentFragment();
  const blocks = shown.mode ? [["plain", "", 0, Infinity]] : data.header.blocks.length ? data.header.blocks : [["policy", "assistant", 0, Infinity]];
  let unit = 0;
  for (const [index, block] of blocks.entries()) {
    const from = unit;
    const last = index === blocks.length - 1;
    while (unit < data.units.length && (last || data.units[unit][4] < block[3] || findUnitEnd(data.units[unit]) <= block[3])) unit += 1;
    if (unit > from || (last && !chunks.length)) parts.append(blockElement(block, from, unit));
  }
  box.replaceChildren(parts);
  box.classList.toggle("as-tokens", shown.mode === "tokens");
  for (const chunk of chunks) watcher.observe(chunk.element);
  fillNear();
  document.dispatchEvent(new CustomEvent("tokens:ready"));
}

const TITLES = {
  plain: () => "",
  policy: () => "assistant",
  think: () => "thinking",
  call: (label) => `call · ${label}`,
  environment: (label) => `${label} · not in the loss`,
  given: () => "given by a method · not in the loss",
};

function blockElement([kind, label], from, to) {
  const tokens = from < to ? data.units[to - 1][1] + data.units[to - 1][2] - data.units[from][1] : 0;
  const characters = from < to ? findUnitEnd(data.units[to - 1]) - data.units[from][4] : 0;
  const folds = kind !== "plain" && kind !== "policy";
  const block = make(folds ? "details" : "section", `turn ${kind}`);
  const head = make(folds ? "summary" : "p", "turn-head");
  head.append(make("span", "role-name", TITLES[kind](label)), make("span", "muted", ` ${data.total ? `${tokens} ${tokens === 1 ? "token" : "tokens"}, ` : ""}${characters} characters`));
  if (kind !== "plain") block.append(head);
  if (folds) block.open = !((kind === "think" || kind === "environment") && characters > FOLD_FROM);
  for (const [start, end] of cutChunks(from, to)) {
    const element = make("div", "chunk");
    element.dataset.chunk = chunks.length;
    chunkOf.fill(chunks.length, start, end);
    const chunk = { element, start, end, filled: false };
    chunks.push(chunk);
    empty(chunk);
    block.append(element);
  }
  if (from === to) block.append(make("p", "muted", "(empty completion)"));
  return block;
}

/* Chunks end after a line break where there is one, so that cutting changes no line. */
function cutChunks(from, to) {
  const found = [];
  let [start, text] = [from, 0];
  for (let index = from; index < to; index += 1) {
    text += data.units[index][0].length;
    const size = index + 1 - start;
    if ((size >= CHUNK && data.units[index][0].endsWith("\n")) || size >= CHUNK_MOST || text >= CHUNK_TEXT) {
      found.push([start, index + 1]);
      [start, text] = [index + 1, 0];
    }
  }
  if (start < to) found.push([start, to]);
  return found;
}

function empty(chunk) {
  const text = plain(chunk);
  chunk.filled = false;
  chunk.element.replaceChildren(text);
  const columns = Math.max(30, Math.floor((box.clientWidth || 700) / 7.9));
  const lines = text.split("\n").reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / columns)), 0);
  chunk.element.style.setProperty("--lines", lines - (text.endsWith("\n") ? 1 : 0));
}

/* What the chunk's spans would show, in one piece. */
function plain(chunk) {
  const units = data.units.slice(chunk.start, chunk.end);
  if (shown.mode !== "tokens" && !units.some((unit) => unit[3] & (SPECIAL | TORN))) {
    return tokenOverlays.visible(data.text.slice(units[0][4], findUnitEnd(units[units.length - 1])), shown.spaces, shown.invisible);
  }
  return units.map((unit) => writeUnit(unit) + findBreak(unit)).join("");
}

function fillChunk(chunk) {
  if (chunk.filled) return;
  const nodes = document.createDocumentFragment();
  for (let index = chunk.start; index < chunk.end; index += 1) nodes.append(makeSpan(data.units[index]), findBreak(data.units[index]));
  chunk.element.replaceChildren(nodes);
  chunk.filled = true;
  document.dispatchEvent(new CustomEvent("tokens:shown", { detail: { first: data.units[chunk.start][1], last: data.units[chunk.end - 1][1] } }));
}

function makeSpan(unit) {
  const span = make("span", nameClasses(unit), writeUnit(unit));
  span.hidden = Boolean(unit[3] & SPECIAL) && !span.textContent;
  span.dataset.first = unit[1];
  if (!unit[2]) span.dataset.at = unit[4];
  span.dataset.last = unit[1] + Math.max(0, unit[2] - 1);
  if (shown.ids && unit[2]) span.dataset.ids = Array.from(data.ids.slice(unit[1], unit[1] + unit[2])).join(" ");
  return span;
}

function nameClasses(unit) {
  let name = "unit";
  const out = unit[3] & ENVIRONMENT || !isInLoss(data, unit);
  if (unit[3] & SPECIAL) name += " special";
  if (out) name += " out";
  if (shown.overlay && scale && unit[2] && !out) {
    const value = tokenOverlays.unitValue(unit, tokenOverlays.values(data, shown.overlay));
    name += ` ${tokenOverlays.levelClass(scale.level(value), value)}`;
    if (shown.overlay === "ratio" && data.clipped && data.clipped[unit[1]]) name += " clipped";
  }
  for (const mark of marks) if (mark.start < unit[1] + unit[2] && mark.end > unit[1]) name += ` ${mark.className}`;
  return name;
}

function recolourUnits(start = 0, end = Infinity) {
  for (const chunk of chunks) {
    const last = data.units[chunk.end - 1];
    if (!chunk.filled || data.units[chunk.start][1] >= end || last[1] + last[2] <= start) continue;
    for (const span of chunk.element.children) {
      const unit = data.units[data.unitOf[span.dataset.first]];
      if (!unit || unit[1] + unit[2] <= start || unit[1] >= end) continue;
      const wanted = nameClasses(unit);
      if (span.className !== wanted) span.className = wanted;
    }
  }
}

/* A chunk leaves its spans behind when it is far away, unless the reader has selected something in it. */
function noticeVisible(entries) {
  const selection = getSelection();
  for (const { target, isIntersecting } of entries) {
    const chunk = chunks[target.dataset.chunk];
    if (!chunk || chunk.element !== target) continue;
    if (isIntersecting && !chunk.filled) waiting.add(chunk);
    else if (!isIntersecting) waiting.delete(chunk);
    if (!isIntersecting && chunk.filled && !(selection.rangeCount && selection.containsNode(target, true))) empty(chunk);
  }
  if (waiting.size && !pumping) pumpChunks();
}

/* Fills what came near, the nearest to the window's middle first, a few chunks a frame: their text is there already, only the spans are not. */
function pumpChunks() {
  const middle = innerHeight / 2;
  const away = ({ element }) => { const at = element.getBoundingClientRect(); return Math.max(at.top - middle, middle - at.bottom); };
  const queue = [...waiting].map((chunk) => [away(chunk), chunk]).sort((one, other) => one[0] - other[0]);
  const start = performance.now();
  for (const [, chunk] of queue) {
    waiting.delete(chunk);
    if (chunk.element.isConnected) fillChunk(chunk);
    if (performance.now() - start > BUDGET) break;
  }
  pumping = waiting.size > 0;
  if (pumping) requestAnimationFrame(pumpChunks);
}

/* What is in view is filled at once; the observer speaks only after the first frame. */
function fillNear() {
  for (const chunk of chunks) {
    const at = chunk.element.getBoundingClientRect();
    if (at.top > innerHeight + 200) break;
    if (at.height && at.bottom > -200) fillChunk(chunk);
  }
}

/* The span of a token, filled and unfolded if need be; null for a token that does not exist. */
function findSpan(position) {
  if (!data || !(position >= 0) || position >= data.total) return null;
  const unit = data.unitOf[position];
  const chunk = chunks[chunkOf[unit]];
  for (let fold = chunk.element.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  fillChunk(chunk);
  return chunk.element.querySelector(`[data-first="${data.units[unit][1]}"]`);
}

/* How much of the window's top the toolbar covers. */
function measureCovered() {
  const bar = document.getElementById("reader-bar");
  return bar && getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
}

/* Twice, because chunks on the way have an estimated height until they are laid out. */
function scrollToToken(position) {
  const found = findSpan(position);
  if (!found) return;
  const room = measureCovered();
  const settle = () => {
    const target = findSpan(position);
    const at = target && target.getBoundingClientRect();
    if (at && (at.top < room + 40 || at.bottom > innerHeight - 60)) scrollBy({ top: at.top - room - (innerHeight - room) / 3, behavior: "instant" });
  };
  settle();
  requestAnimationFrame(() => { settle(); requestAnimationFrame(settle); });
}

function markTokens(start, end, className) {
  const made = { start, end, className };
  marks.push(made);
  if (data) recolourUnits(start, end);
  return () => { marks = marks.filter((one) => one !== made); recolourUnits(start, end); };
}

function unmarkTokens(className) {
  const gone = marks.filter((one) => one.className === className);
  marks = marks.filter((one) => one.className !== className);
  for (const one of gone) recolourUnits(one.start, one.end);
}

/* Many marks at once, as a search makes them: one pass over the page. */
function replaceMarks(className, stretches) {
  marks = marks.filter((one) => one.className !== className).concat(stretches.map(([start, end]) => ({ start, end, className })));
  recolourUnits();
}

/* The text of tokens [start, end). */
function readText(start, end) {
  if (!data || !data.total || end <= start) return "";
  const [first, last] = [start, end - 1].map((one) => data.units[data.unitOf[Math.min(data.total - 1, Math.max(0, one))]]);
  return data.text.slice(first[4], findUnitEnd(last));
}

/* Shows the text another way; a change of its shape builds it anew and keeps the reader's place. */
function changeView(changes) {
  const before = shown;
  shown = { ...shown, ...changes };
  if (!data) return;
  scale = shown.overlay ? tokenOverlays.scale([data], shown.overlay, shown.clip) : null;
  const reshaped = ["mode", "spaces", "special", "invisible", "ids"].some((name) => before[name] !== shown[name]);
  if (reshaped) {
    const place = scrollY > 200 ? findTokensInView() : null;
    buildText(data);
    if (place) scrollToToken(place[0]);
  } else recolourUnits();
}

/* [first, last] token in view, or null. */
function findTokensInView() {
  let [first, last] = [null, null];
  const room = measureCovered();
  for (const chunk of chunks) {
    if (!chunk.filled) { if (first !== null) break; else continue; }
    const at = chunk.element.getBoundingClientRect();
    if (!at.height || at.bottom < room) continue;
    if (at.top > innerHeight) break;
    const [from, to] = [data.units[chunk.start][1], data.units[chunk.end - 1][1] + data.units[chunk.end - 1][2]];
    const at_share = (share) => Math.round(from + Math.min(1, Math.max(0, share)) * (to - from));
    if (first === null) first = at_share((room - at.top) / at.height);
    last = at_share((innerHeight - at.top) / at.height);
  }
  return first === null ? null : [first, last];
}

function toggleFolds() {
  const folds = [...box.querySelectorAll("details.turn"), ...document.querySelectorAll(".prompt-turns details")];
  const open = !folds.some((fold) => fold.open);
  for (const fold of folds) fold.open = open;
  return folds.length ? open : null;
}

/* The completion as the page shows it; data is null until its tokens have come. */
export const completion = {
  put: buildText, show: changeView, span: findSpan, scrollTo: scrollToToken, mark: markTokens, unmark: unmarkTokens, replaceMarks, text: readText, inView: findTokensInView, foldAll: toggleFolds,
  get data() { return data; },
  get scale() { return scale; },
  get chunks() { return chunks; },
  get marks() { return marks; },
  get filled() { return chunks.filter((chunk) => chunk.filled).length; },
};
