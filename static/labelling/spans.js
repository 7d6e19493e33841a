/* An answer token by token: stretches of it are marked good or bad with the mouse, or with a caret that arrows move and Shift extends. */
import { announce } from "../base/page.js";
import { tokenOverlays } from "../rollouts/tokens.js";
import { makeChoiceButton, makeKeyHint } from "./keys.js";
import { say } from "./notices.js";
import { make, page, setPressed } from "./page.js";
import { answerPanels } from "./panels.js";

const QUOTE = 120; // characters of a span in the list
const { SPECIAL, ENVIRONMENT, TORN } = tokenOverlays;

/* The text as units, with a caret where it is markable: {element, box, bar, picked(), paint(name, ranges), place(token), clear(), quote(start, end), ends}; ranges are [start, end) in tokens. */
function makeTokenText(answer, name, markable) {
  const units = answer.units;
  const panel = answerPanels.answer(answer, name);
  const box = panel.element.querySelector(".answer-text");
  box.classList.add("units", "token-text");
  box.classList.toggle("plain-units", !markable);
  if (markable) box.setAttribute("aria-label", `${name}, token by token; arrows move the caret, Shift selects`);
  const spans = units.map((unit, at) => {
    const span = make("span", "unit");
    if (unit[3] & ENVIRONMENT) span.classList.add("out");
    span.hidden = Boolean(unit[3] & SPECIAL);
    span.dataset.at = at;
    return span;
  });
  const stops = !markable ? [] : units.flatMap((unit, at) => (unit[2] && !(unit[3] & SPECIAL) ? [at] : [])); // where the caret can stand
  let caret = null;
  let anchor = null;

  const written = (unit) => (unit[3] & TORN ? `⟨${unit[2]} broken ${unit[2] === 1 ? "piece" : "pieces"}⟩` : answerPanels.shownText(unit[0]));
  function redraw() {
    units.forEach((unit, at) => { spans[at].textContent = written(unit); });
    if (spans.length) box.replaceChildren(...spans);
  }
  panel.element.redraw = redraw;
  redraw();

  const solid = units.flatMap((unit, at) => (unit[2] ? [at] : [])); // those with tokens, in their order

  /* Units that have a token of [start, end). */
  function within(start, end) {
    let [low, high] = [0, solid.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      const unit = units[solid[middle]];
      if (unit[1] + unit[2] > start) high = middle;
      else low = middle + 1;
    }
    const found = [];
    for (; low < solid.length && units[solid[low]][1] < end; low += 1) found.push(solid[low]);
    return found;
  }

  const painted = new Map(); // layer → spans that have it

  function paint(layer, ranges) {
    const next = new Set(ranges.flatMap(([start, end]) => within(start, end).map((at) => spans[at])));
    for (const span of painted.get(layer) || []) if (!next.has(span)) span.classList.remove(layer);
    for (const span of next) span.classList.add(layer);
    painted.set(layer, next);
  }

  const chosen = () => (caret === null ? null : [Math.min(caret, anchor ?? caret), Math.max(caret, anchor ?? caret)]);
  const tokensOf = ([first, last]) => [units[first][1], units[last][1] + units[last][2]];

  function draw() {
    const now = chosen();
    paint("picked", now && anchor !== null ? [tokensOf(now)] : []);
    for (const span of box.querySelectorAll(".caret")) span.classList.remove("caret");
    if (caret !== null) { spans[caret].classList.add("caret"); spans[caret].scrollIntoView({ block: "nearest" }); }
  }

  /* Takes over what the mouse selected in the text. */
  function sync() {
    const selection = getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return;
    const range = selection.getRangeAt(0);
    if (!box.contains(range.startContainer) || !box.contains(range.endContainer)) return;
    const inside = stops.filter((at) => range.intersectsNode(spans[at]) && covered(range, spans[at]));
    if (inside.length) { anchor = inside[0]; caret = inside[inside.length - 1]; draw(); }
  }

  /* Whether a range takes more of a span than its edge. */
  function covered(range, span) {
    const text = span.firstChild;
    if (!text) return false;
    if (range.startContainer === text && range.startOffset >= text.length) return false;
    return !(range.endContainer === text && range.endOffset === 0);
  }

  /* The stop one line up or down, nearest to where the caret is. */
  function line(at, by) {
    const from = spans[stops[at]].getBoundingClientRect();
    let found = at;
    let gap = Infinity;
    let top = null;
    for (let next = at + by; next >= 0 && next < stops.length; next += by) {
      const rect = spans[stops[next]].getBoundingClientRect();
      if (Math.abs(rect.top - from.top) < from.height / 2) continue;
      if (top === null) top = rect.top;
      if (Math.abs(rect.top - top) > from.height / 2) break;
      if (Math.abs(rect.left - from.left) < gap) { gap = Math.abs(rect.left - from.left); found = next; }
    }
    return found;
  }

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !stops.length) return;
    const at = Math.max(0, stops.indexOf(caret));
    const to = { ArrowRight: () => at + (caret === null ? 0 : 1), ArrowLeft: () => at - 1, ArrowDown: () => line(at, 1), ArrowUp: () => line(at, -1), Home: () => 0, End: () => stops.length - 1 }[event.key];
    if (event.key === "Escape") { event.preventDefault(); clear(); box.closest("[data-stage]").focus({ preventScroll: true }); return; }
    if (!to) return;
    event.preventDefault();
    if (event.shiftKey && anchor === null) anchor = caret ?? stops[0];
    if (!event.shiftKey) anchor = null;
    caret = stops[Math.min(stops.length - 1, Math.max(0, to()))];
    draw();
  });
  box.addEventListener("focus", () => { if (caret === null && stops.length && box.matches(":focus-visible")) { caret = stops[0]; draw(); } });
  box.addEventListener("pointerup", (event) => {
    const span = event.target.closest("[data-at]");
    if (!getSelection().isCollapsed) { sync(); return; }
    if (span && stops.includes(Number(span.dataset.at))) { caret = Number(span.dataset.at); anchor = null; draw(); }
  });

  function clear() { caret = null; anchor = null; getSelection().removeAllRanges(); draw(); }

  return {
    element: panel.element, bar: panel.bar, box, units, spans, paint,
    active: () => box.contains(document.activeElement) || anchor !== null,
    picked() { sync(); const now = chosen(); return now && tokensOf(now); },
    drop() { anchor = null; getSelection().removeAllRanges(); draw(); },
    show(token) { spans[within(token, token + 1)[0]]?.scrollIntoView({ block: "nearest" }); },
    quote: (start, end) => within(start, end).map((at) => units[at]).filter((unit) => !(unit[3] & SPECIAL)).map((unit) => unit[0]).join(""),
  };
}

/* Units of an answer whose tokens are not known here: its steps, and what stands between them. Null where a step is not found in the text. */
function makeStepUnits({ text, steps }) {
  const units = [];
  let at = 0;
  for (const { start, end, text: words } of steps) {
    const from = text.indexOf(words, at);
    if (from < 0) return null;
    if (from > at) units.push([text.slice(at, from), start, 0, 0]);
    units.push([words, start, end - start, 0]);
    at = from + words.length;
  }
  if (at < text.length) units.push([text.slice(at), 0, 0, 0]);
  return units;
}

/* The spans marked on a text: {element, mark(kind), remove(), read, fill}. A new one takes the place of what it covers. */
function makeSpanMarks(text) {
  let list = []; // [{start, end, mark}] in order, none over another
  const rows = make("ol", "span-list");
  const none = make("p", "muted small", "Select text, or ", makeKeyHint("span-enter", "t"), " and the arrows with Shift; then ", makeKeyHint("mark-good", "g"), " good or ", makeKeyHint("mark-bad", "x"), " bad.");
  const cut = (start, end) => list.flatMap((one) => (one.end <= start || one.start >= end ? [one] : [{ ...one, end: start }, { ...one, start: end }].filter((part) => part.start < part.end)));

  function replace(next) {
    list = next.sort((one, other) => one.start - other.start);
    draw();
    page.changed();
  }

  function mark(kind) {
    const range = text.picked();
    if (!range) { say("Select some of the answer first."); return; }
    replace([...cut(...range), { start: range[0], end: range[1], mark: kind }]);
    text.drop();
    announce(`Marked ${kind}: ${text.quote(...range).slice(0, QUOTE)}`);
  }

  function remove() {
    const range = text.picked();
    if (!range || !list.some((one) => one.start < range[1] && one.end > range[0])) { say("No span is marked here."); return; }
    replace(list.filter((one) => one.start >= range[1] || one.end <= range[0]));
    text.drop();
  }

  function row(one) {
    const gone = make("button", "icon-button", "×");
    gone.type = "button";
    const quote = answerPanels.shownText(text.quote(one.start, one.end));
    gone.setAttribute("aria-label", `Remove the ${one.mark} span ${quote.slice(0, 40)}`);
    gone.addEventListener("click", () => replace(list.filter((other) => other !== one)));
    const words = make("button", "link span-quote", quote.length > QUOTE ? `${quote.slice(0, QUOTE)}…` : quote);
    words.type = "button";
    words.addEventListener("click", () => text.show(one.start));
    return make("li", "", make("span", `badge ${one.mark}`, one.mark === "good" ? "✓ good" : "✗ bad"), words, gone);
  }

  function draw() {
    for (const kind of ["good", "bad"]) text.paint(`span-${kind}`, list.filter((one) => one.mark === kind).map((one) => [one.start, one.end]));
    rows.replaceChildren(...list.map(row));
    none.hidden = list.length > 0;
  }

  text.box.addEventListener("keydown", (event) => { if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); remove(); } });
  for (const [id, key, words, kind] of [["mark-good", "g", "Good span", "good"], ["mark-bad", "x", "Bad span", "bad"]]) {
    const made = makeChoiceButton(id, key, words, () => mark(kind));
    made.classList.add("small");
    made.removeAttribute("aria-pressed");
    made.addEventListener("mousedown", (event) => event.preventDefault()); // the selection stays
    text.bar.append(made);
  }
  draw();
  return {
    element: make("section", "marked-spans", make("h3", "label", "Spans"), none, rows),
    mark, remove,
    read: () => list.map(({ start, end, mark: kind }) => ({ start, end, mark: kind })),
    fill(spans) {
      const good = (one) => one && Number.isInteger(one.start) && Number.isInteger(one.end) && one.start < one.end && ["good", "bad"].includes(one.mark);
      list = (Array.isArray(spans) ? spans.filter(good) : []).map(({ start, end, mark: kind }) => ({ start, end, mark: kind }));
      draw();
    },
  };
}

/* Colours the tokens by entropy; only where the queue shows where an answer is from. */
function makeEntropyColours(text, about) {
  const legend = make("p", "legend-bar");
  legend.hidden = true;
  let data = null;
  let on = false;
  const toggle = async () => {
    try {
      data = data || (await (await fetch(`${about.url}tokens/`)).json());
    } catch { data = { error: "The tokens could not be loaded. Try again." }; }
    if (data.error || !tokenOverlays.values(data, "entropy")) { say(data.error || "No entropies were stored with this answer."); data = null; return; }
    on = !on;
    setPressed(made, on);
    colour();
  };
  const made = makeChoiceButton("entropy", "y", "Entropy", toggle);
  made.classList.add("small");
  function colour() {
    const numbers = tokenOverlays.values(data, "entropy");
    const scale = tokenOverlays.scale([data], "entropy");
    text.box.classList.toggle("view-entropy", on);
    text.units.forEach((unit, at) => {
      const level = on && !(unit[3] & ENVIRONMENT) ? tokenOverlays.levelClass(scale.level(tokenOverlays.unitValue(unit, numbers))) : "";
      const span = text.spans[at];
      for (const name of [...span.classList]) if (name.startsWith("level-")) span.classList.remove(name);
      if (level) span.classList.add(level);
    });
    legend.replaceChildren(...tokenOverlays.legendParts("entropy", scale, "this answer"));
    legend.hidden = !on;
  }
  text.bar.append(made);
  text.element.querySelector(".answer-bar").after(legend);
  return { key: { id: "entropy", key: "y", label: "Colour tokens by entropy", run: toggle } };
}

export const spanTexts = { tokenText: makeTokenText, stepUnits: makeStepUnits, marked: makeSpanMarks, entropy: makeEntropyColours };
