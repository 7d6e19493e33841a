/* Preference over preferences: two pairs of answers; in which one is it clearer which answer is better? */
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
  const fields = makeFields(claim, { strength: false });
  const pairs = [0, 2].map((from, index) => {
    const answers = claim.answers.slice(from, from + 2);
    const panels = answers.map((one, place) => {
      const panel = answerPanels.answer(one, `Pair ${index + 1}, answer ${place + 1}`);
      if (one.preferred) panel.bar.append(make("span", "badge good", "preferred"));
      return panel;
    });
    const box = make("section", "pair-block", make("h2", "", `Pair ${index + 1}`), make("div", "answers two", ...panels.map((panel) => panel.element)));
    box.setAttribute("aria-label", `Pair ${index + 1}`);
    return { answers, panels, box, spans: null };
  });
  const buttons = {
    1: makeChoiceButton("first", "1", "Pair 1", () => choose("1")),
    2: makeChoiceButton("second", "2", "Pair 2", () => choose("2")),
    tie: makeChoiceButton("tie", "0", "Equally clear", () => choose("tie")),
  };
  const choices = make("div", "choices", make("span", "label", "In which pair is the difference clearer?"), ...Object.values(buttons));
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-label", "In which pair is the difference clearer");

  function choose(value) {
    choice = choice === value ? null : value;
    draw();
    page.changed();
    announce(choice ? `${buttons[choice].firstChild.textContent} chosen` : "Nothing chosen");
    page.decided();
  }

  function draw() {
    for (const [value, one] of Object.entries(buttons)) setPressed(one, choice === value);
    pairs.forEach((pair, index) => pair.box.classList.toggle("chosen", choice === String(index + 1)));
  }

  function compare() {
    compared = comparing;
    markDiffButton();
    for (const pair of pairs) {
      if (comparing) pair.spans = pair.spans || diffTexts(pair.answers[0].text, pair.answers[1].text);
      pair.panels.forEach((panel, place) => panel.text(comparing ? pair.spans : null, place ? "after" : "before"));
    }
  }

  root.append(answerPanels.prompt(claim), ...pairs.map((pair) => pair.box), fields.element);
  if (comparing) compare();
  return {
    choices,
    keys: () => [
      { id: "first", key: "1", also: ["ArrowLeft"], label: "Pair 1 is clearer", once: true, run: () => choose("1") },
      { id: "second", key: "2", also: ["ArrowRight"], label: "Pair 2 is clearer", once: true, run: () => choose("2") },
      { id: "tie", key: "0", also: ["="], label: "Equally clear", once: true, run: () => choose("tie") },
      { id: "diff", key: "d", label: "Word differences within each pair", run: () => { comparing = !comparing; store.keep("diff", comparing, scope); compare(); } },
      ...fields.keys(),
    ],
    read: () => ({ choice, ...fields.read(), reason: "" }),
    fill(answer) { choice = answer.choice in buttons ? answer.choice : null; fields.fill(answer); draw(); },
    ready: () => (choice === null ? `Choose first: ${findKey("first", "1")}, ${findKey("second", "2")}, or ${findKey("tie", "0")} when they are equally clear.` : fields.ready()),
    shown: () => { if (compared !== comparing) compare(); },
    problem: fields.problem,
  };
}

page.kinds.clearer = { render };
