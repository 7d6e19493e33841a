/* Which of two answers is better: beside each other, the same width, in the order the server drew. */
import { announce } from "../base/page.js";
import { diffTexts } from "./diff.js";
import { makeFields } from "./fields.js";
import { findKey, makeChoiceButton } from "./keys.js";
import { make, page, setPressed } from "./page.js";
import { answerPanels } from "./panels.js";
import { store } from "./store.js";

const scope = `lab-labels-${page.person}-`;
let comparing = store.kept("diff", false, scope);

function markDiffButton() { document.querySelector('[data-run="diff"]')?.setAttribute("aria-pressed", String(comparing)); }
markDiffButton();

function render(root, claim) {
  let choice = null;
  let compared = false;
  let spans = null;
  const panels = claim.answers.map((one, index) => answerPanels.answer(one, `Answer ${index + 1}`));
  const [left, right] = claim.answers;
  const fields = makeFields(claim, { better: () => claim.answers[choice === "2" ? 1 : 0].text });
  const buttons = {
    1: makeChoiceButton("first", "1", "Answer 1", () => choose("1")),
    2: makeChoiceButton("second", "2", "Answer 2", () => choose("2")),
    tie: makeChoiceButton("tie", "0", "Tie", () => choose("tie")),
    bad: makeChoiceButton("bad", "b", "Both bad", () => choose("bad")),
  };
  const choices = make("div", "choices", make("span", "label", "Which is better?"), ...Object.values(buttons));
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-label", "Which answer is better");

  function choose(value) {
    choice = choice === value ? null : value;
    draw();
    page.changed();
    announce(choice ? `${buttons[choice].firstChild.textContent} chosen` : "Nothing chosen");
    page.decided();
  }

  function draw() {
    for (const [value, one] of Object.entries(buttons)) setPressed(one, choice === value);
    panels.forEach((panel, index) => panel.element.classList.toggle("chosen", choice === String(index + 1)));
    fields.apply(choice === null || choice === "1" || choice === "2");
  }

  function compare() {
    compared = comparing;
    markDiffButton();
    if (comparing) spans = spans || diffTexts(left.text, right.text);
    panels.forEach((panel, index) => panel.text(comparing ? spans : null, index ? "after" : "before"));
  }

  root.append(answerPanels.prompt(claim), make("div", "answers two", ...panels.map((panel) => panel.element)), fields.element);
  if (comparing) compare();
  draw();
  return {
    choices: fields.strength ? make("div", "row dock-groups", choices, fields.strength) : choices,
    keys: () => [
      { id: "first", key: "1", also: ["ArrowLeft"], label: "Answer 1 is better", once: true, run: () => choose("1") },
      { id: "second", key: "2", also: ["ArrowRight"], label: "Answer 2 is better", once: true, run: () => choose("2") },
      { id: "tie", key: "0", also: ["="], label: "Tie", once: true, run: () => choose("tie") },
      { id: "bad", key: "b", label: "Both are bad", once: true, run: () => choose("bad") },
      { id: "diff", key: "d", label: "Word differences", run: () => { comparing = !comparing; store.keep("diff", comparing, scope); compare(); announce(comparing ? "Differences are marked" : "Differences are not marked"); } },
      ...fields.keys(),
    ],
    read: () => ({ choice, ...fields.read(), reason: "" }),
    fill(answer) { choice = answer.choice in buttons ? answer.choice : null; fields.fill(answer); draw(); },
    ready: () => (choice === null ? `Choose first: ${findKey("first", "1")}, ${findKey("second", "2")}, ${findKey("tie", "0")} for a tie, ${findKey("bad", "b")} for both bad.` : fields.ready()),
    shown: () => { if (compared !== comparing) compare(); }, // the person may have switched it while this item waited
    problem: fields.problem,
  };
}

page.kinds.pair = { render };
