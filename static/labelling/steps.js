/* Marks on the reasoning steps of an answer, for process rewards: good, bad or neutral each, the first bad one stands out. */
import { announce } from "../base/page.js";
import { findKey, makeKeyHint } from "./keys.js";
import { make, page, setPressed } from "./page.js";
import { answerPanels } from "./panels.js";

const MARKS = [["good", "✓"], ["bad", "✗"], ["neutral", "–"]];

/* steps: [{start, end, text}]; text: the answer token by token, or null. Gives {element, keys, mark(kind), read, fill, ready}. */
export function makeSteps(steps, text) {
  const chosen = steps.map(() => null);
  let current = 0;
  const count = make("p", "muted small");
  count.setAttribute("role", "status");
  const rows = steps.map(row);
  const list = make("ol", "label-steps", ...rows);
  list.setAttribute("aria-label", "Steps of the answer");
  const rest = make("button", "button small", "The rest is neutral ", makeKeyHint("steps-rest", "m"));
  rest.type = "button";
  rest.addEventListener("click", neutral);

  function row(step, at) {
    const buttons = MARKS.map(([mark, glyph]) => {
      const made = make("button", `mark-button ${mark}`, glyph);
      made.type = "button";
      made.dataset.mark = mark;
      made.dataset.choice = `step-${mark}`; // so that Enter submits after a click, too
      made.setAttribute("aria-label", `Step ${at + 1}: ${mark}`);
      made.title = mark;
      made.addEventListener("click", () => { current = at; set(chosen[at] === mark ? null : mark); });
      return made;
    });
    const words = make("p", "step-words", answerPanels.shownText(step.text));
    words.addEventListener("click", () => { current = at; draw(); });
    return make("li", "", make("span", "step-number", String(at + 1)), words, make("span", "step-buttons", ...buttons), make("span", "badge bad first-bad", "first bad step"));
  }

  const firstBad = () => chosen.indexOf("bad");

  function draw() {
    const bad = firstBad();
    rows.forEach((one, at) => {
      if (at === current) one.setAttribute("aria-current", "step");
      else one.removeAttribute("aria-current");
      one.classList.toggle("is-first-bad", at === bad);
      one.classList.toggle("after-bad", bad >= 0 && at > bad && chosen[at] === null);
      for (const made of one.querySelectorAll("[data-mark]")) setPressed(made, chosen[at] === made.dataset.mark);
    });
    const done = chosen.filter(Boolean).length;
    count.textContent = `${done} of ${steps.length} marked${bad >= 0 ? `, the first bad step is ${bad + 1}` : ""}`;
    rest.disabled = done === steps.length;
    if (!text) return;
    for (const [mark] of MARKS) text.paint(`step-${mark}`, steps.filter((_, at) => chosen[at] === mark).map(({ start, end }) => [start, end]));
    text.paint("step-now", steps[current] ? [[steps[current].start, steps[current].end]] : []);
  }

  /* Only inside the list and the text: the page itself stays where it is. */
  function show() {
    const { offsetTop, offsetHeight } = rows[current];
    if (offsetTop < list.scrollTop) list.scrollTop = offsetTop;
    if (offsetTop + offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = offsetTop + offsetHeight - list.clientHeight;
    text?.show(steps[current].start);
  }

  function go(by) {
    current = Math.min(steps.length - 1, Math.max(0, current + by));
    draw();
    show();
    announce(`Step ${current + 1}${chosen[current] ? `, ${chosen[current]}` : ""}: ${steps[current].text.slice(0, 200)}`);
  }

  function set(mark) {
    chosen[current] = mark;
    draw();
    page.changed();
  }

  function mark(kind) {
    const at = current;
    set(kind);
    if (at + 1 < steps.length) { current = at + 1; draw(); show(); }
    announce(`Step ${at + 1} ${kind}.${at + 1 < steps.length ? "" : " That was the last step."}`);
  }

  function neutral() {
    chosen.forEach((one, at) => { if (one === null) chosen[at] = "neutral"; });
    draw();
    page.changed();
    announce("Every step without a mark is neutral now");
  }

  draw();
  return {
    element: make("section", "marked-steps", make("h3", "label", "Steps"), count, list, rest),
    mark,
    keys: () => [
      { id: "step-next", key: "j", label: "Next step", run: () => go(1) },
      { id: "step-before", key: "k", label: "Step before", run: () => go(-1) },
      { id: "mark-neutral", key: "n", label: "Mark the step neutral", run: () => mark("neutral") },
      { id: "mark-clear", key: "0", label: "Take the step's mark away", run: () => set(null) },
      { id: "steps-rest", key: "m", label: "The rest of the steps is neutral", run: neutral },
    ],
    read: () => steps.flatMap(({ start, end }, at) => (chosen[at] ? [{ start, end, mark: chosen[at] }] : [])),
    fill(marked) {
      const known = new Map((Array.isArray(marked) ? marked : []).map((one) => [`${one?.start}-${one?.end}`, one?.mark]));
      steps.forEach(({ start, end }, at) => { const found = known.get(`${start}-${end}`); chosen[at] = MARKS.some(([name]) => name === found) ? found : null; });
      const open = chosen.indexOf(null);
      current = open < 0 ? 0 : open;
      draw();
    },
    /* Steps after the first bad one may stay without a mark. */
    ready() {
      const open = chosen.indexOf(null);
      const bad = firstBad();
      if (open < 0 || (bad >= 0 && open > bad)) return "";
      current = open;
      draw();
      show();
      return `Step ${open + 1} has no mark yet: ${findKey("mark-good", "g")} good, ${findKey("mark-bad", "x")} bad, ${findKey("mark-neutral", "n")} neutral; ${findKey("steps-rest", "m")} marks the rest neutral.`;
    },
  };
}
