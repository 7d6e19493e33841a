/* What a queue asks besides the choice: how much better, rubric questions, why, and a corrected answer. */
import { diffTexts, makeDiffNodes } from "./diff.js";
import { makeChoiceButton, makeKeyHint } from "./keys.js";
import { say } from "./notices.js";
import { make, page, setPressed } from "./page.js";
import { answerPanels } from "./panels.js";
import { makeRubric } from "./rubric.js";

const STRENGTHS = [[1, "q", "Slightly"], [2, "w", "Clearly"], [3, "e", "Far better"]];
let numbered = 0;

function makeTextArea(label, help) {
  const id = `text-${(numbered += 1)}`;
  const box = Object.assign(make("textarea", "input"), { id, rows: 3 });
  const title = Object.assign(make("label", "label"), { htmlFor: id });
  title.append(...label);
  const error = make("p", "field-error");
  box.addEventListener("input", () => { error.textContent = ""; box.removeAttribute("aria-invalid"); page.changed(); });
  return { box, error, element: make("div", "field", title, help ? make("p", "field-help", help) : null, box, error) };
}

// ---- strength

function makeStrength() {
  let chosen = null;
  let applies = true;
  const choose = (value) => {
    if (!applies) { say("How much better is asked of a better answer only: choose one first."); return; }
    chosen = chosen === value ? null : value;
    draw();
    page.changed();
  };
  const buttons = STRENGTHS.map(([value, key, text]) => makeChoiceButton(`strength-${value}`, key, text, () => choose(value)));
  function draw() {
    buttons.forEach((one, index) => { setPressed(one, applies && chosen === index + 1); one.setAttribute("aria-disabled", String(!applies)); });
  }
  const element = make("div", "strength", make("span", "label", "How much better?"), ...buttons);
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", "How much better");
  draw();
  return {
    element,
    keys: () => STRENGTHS.map(([value, key, text]) => ({ id: `strength-${value}`, key, label: `Strength: ${text.toLowerCase()}`, run: () => choose(value) })),
    read: () => (applies ? chosen : null),
    fill: (value) => { chosen = [1, 2, 3].includes(value) ? value : null; draw(); },
    apply: (on) => { if (applies !== on) { applies = on; draw(); } },
  };
}

// ---- the corrected answer

function makeCorrection(better) {
  const { box, error, element } = makeTextArea(["Corrected answer"], null);
  const changes = make("div", "correction-diff completion");
  changes.setAttribute("aria-label", "What the correction changes");
  changes.hidden = true;
  let start = "";
  let later = 0;
  box.rows = 8;
  element.append(changes);
  const fold = make("div", "correction", element);
  fold.hidden = true;
  function compare() {
    const shown = start && box.value !== start ? diffTexts(start, box.value) : [];
    changes.hidden = !shown.length;
    changes.replaceChildren(...makeDiffNodes(shown, "both", answerPanels.shownText));
  }
  box.addEventListener("input", () => { clearTimeout(later); later = setTimeout(compare, 200); });
  function open() {
    if (!box.value) { box.value = better() || ""; start = box.value; } // the browser made line feeds of its carriage returns
    fold.hidden = false;
    compare();
  }
  const opener = makeChoiceButton("correct", "c", "Correct it", () => { open(); box.focus(); });
  opener.removeAttribute("aria-pressed");
  return {
    element: make("div", "stack-tight", opener, fold), error, box,
    edit() { open(); box.focus(); page.changed(); },
    read: () => (fold.hidden || box.value === start ? "" : box.value), // an untouched copy corrects nothing
    fill(text) { start = text ? (better() || "").replace(/\r\n?/g, "\n") : ""; box.value = text || ""; fold.hidden = !text; compare(); },
  };
}

/* What the page's queue asks: {element, strength, keys, read, fill, ready, problem, apply}. strength is an element of its own, for the dock;
   apply(on): whether a strength makes sense for the choice made. c is always taken: elsewhere it leaves for the launch form. */
export function makeFields(claim, { better = () => "", strength: asked = true } = {}) {
  const queue = page.queue;
  const parts = {
    strength: queue.strength && asked ? makeStrength() : null,
    rubric: makeRubric(),
    rationale: queue.rationale === "none" ? null : makeTextArea(["Why? ", makeKeyHint("rationale", "r"), make("span", "muted", queue.rationale === "required" ? " required" : " optional")], null),
    correction: queue.correction ? makeCorrection(better) : null,
  };
  const keys = () => [
    ...(parts.strength ? parts.strength.keys() : []),
    ...(parts.rationale ? [{ id: "rationale", key: "r", label: "Write why", run: () => parts.rationale.box.focus() }] : []),
    parts.correction ? { id: "correct", key: "c", label: "Write a corrected answer", run: () => parts.correction.edit() } : { id: "correct", key: "c", label: "Corrected answer: not asked here", run: () => say("This queue does not ask for a corrected answer.") },
    ...(parts.rubric ? [{ id: "rubric", key: "o", label: "To the questions, from one to the next, and back", run: () => parts.rubric.focus() }] : []),
  ];
  return {
    element: make("div", "fields", ...[parts.rubric, parts.rationale, parts.correction].filter(Boolean).map((part) => part.element)),
    strength: parts.strength ? parts.strength.element : null,
    keys,
    apply: (on) => parts.strength?.apply(on),
    read: () => ({
      strength: parts.strength ? parts.strength.read() : null,
      rubric: parts.rubric ? parts.rubric.read() : {},
      rationale: parts.rationale ? parts.rationale.box.value : "",
      correction: parts.correction ? parts.correction.read() : "",
    }),
    fill(answer) {
      parts.strength?.fill(answer.strength);
      parts.rubric?.fill(answer.rubric);
      if (parts.rationale) parts.rationale.box.value = answer.rationale || "";
      parts.correction?.fill(answer.correction);
    },
    ready() {
      const missing = parts.rubric?.ready();
      if (missing) return missing;
      if (queue.rationale === "required" && !parts.rationale.box.value.trim()) { parts.rationale.box.focus(); return "Write why: this queue asks for a rationale."; }
      return "";
    },
    problem(field, text) {
      const part = parts[field];
      if (part?.error && part.box) {
        part.error.textContent = text;
        part.box.setAttribute("aria-invalid", "true");
        if (field === "correction") part.edit();
        else part.box.focus();
        return true;
      }
      return Boolean(parts.rubric?.problem(field, text));
    },
  };
}
