/* One answer: good, bad or neutral, with marks on its steps and spans where the queue asks for them. */
import { announce } from "../base/page.js";
import { makeFields } from "./fields.js";
import { findKey, makeChoiceButton } from "./keys.js";
import { say } from "./notices.js";
import { make, page, setPressed } from "./page.js";
import { answerPanels } from "./panels.js";
import { spanTexts } from "./spans.js";
import { makeSteps } from "./steps.js";

function render(root, claim) {
  const [answer] = claim.answers;
  let choice = null;
  const asked = page.queue;
  const units = answer.units?.length ? answer.units : asked.steps && answer.steps?.length ? spanTexts.stepUnits(answer) : null;
  const tokens = units ? spanTexts.tokenText({ ...answer, units }, "Answer", Boolean(answer.units?.length)) : null;
  const panel = tokens || answerPanels.answer(answer, "Answer");
  const spans = asked.spans && answer.units?.length ? spanTexts.marked(tokens) : null;
  const steps = asked.steps && answer.steps?.length ? makeSteps(answer.steps, tokens) : null;
  const colours = spans && answer.about?.url ? spanTexts.entropy(tokens, answer.about) : null;
  const fields = makeFields(claim, { better: () => answer.text, strength: false });
  const buttons = {
    good: makeChoiceButton("good", "1", "Good", () => choose("good")),
    bad: makeChoiceButton("bad", "2", "Bad", () => choose("bad")),
    neutral: makeChoiceButton("neutral", "3", "Neutral", () => choose("neutral")),
  };
  const choices = make("div", "choices", make("span", "label", "The answer is"), ...Object.values(buttons));
  choices.setAttribute("role", "group");
  choices.setAttribute("aria-label", "The answer is");

  function choose(value) {
    choice = choice === value ? null : value;
    draw();
    page.changed();
    announce(choice ? `${choice} chosen` : "Nothing chosen");
    page.decided();
  }

  function draw() { for (const [value, one] of Object.entries(buttons)) setPressed(one, choice === value); }

  /* g and x mark what the person is at: a span while the text has the focus or something is selected, else the step. */
  function mark(kind) {
    if (spans && (!steps || tokens.active())) spans.mark(kind);
    else if (steps) steps.mark(kind);
    else say("This queue asks for no marks on steps or spans.");
  }

  const none = (words) => make("p", "muted small", words);
  const side = [
    asked.steps && !steps ? none("This answer came without tokens, so its steps cannot be told apart.") : null,
    asked.spans && !spans ? none("This answer came without tokens, so no span of it can be marked.") : null,
    steps?.element,
    spans?.element,
  ].filter(Boolean);
  root.append(answerPanels.prompt(claim), make("div", side.length ? "single with-side" : "single", panel.element, side.length ? make("div", "single-side", ...side) : null), fields.element);
  draw();
  return {
    choices,
    keys: () => [
      { id: "good", key: "1", label: "The answer is good", once: true, run: () => choose("good") },
      { id: "bad", key: "2", label: "The answer is bad", once: true, run: () => choose("bad") },
      { id: "neutral", key: "3", label: "The answer is neutral", once: true, run: () => choose("neutral") },
      ...(asked.steps || asked.spans
        ? [
          { id: "mark-good", key: "g", label: `Mark the ${words(asked)} good`, run: () => mark("good") },
          { id: "mark-bad", key: "x", label: `Mark the ${words(asked)} bad`, run: () => mark("bad") },
        ]
        : []),
      ...(asked.steps ? (steps ? steps.keys() : makeSteps([], null).keys().map((one) => ({ ...one, run: () => say("The steps of this answer cannot be told apart.") }))) : []),
      ...(asked.spans ? [{ id: "span-enter", key: "t", label: "Into the text: arrows move, Shift selects", run: () => (spans ? tokens.box.focus() : say("No span of this answer can be marked.")) }] : []),
      ...(asked.blind || !asked.spans ? [] : [colours ? colours.key : { id: "entropy", key: "y", label: "Colour tokens by entropy", run: () => say("No tokens to colour here."), quiet: true }]),
      ...fields.keys().filter((one) => !one.id.startsWith("strength-")),
    ],
    read: () => ({ choice, ...fields.read(), ...(steps ? { steps: steps.read() } : {}), ...(spans ? { spans: spans.read() } : {}), reason: "" }),
    fill(given) {
      choice = given.choice in buttons ? given.choice : null;
      steps?.fill(given.steps);
      spans?.fill(given.spans);
      fields.fill(given);
      draw();
    },
    ready: () => (choice === null ? `Choose first: ${findKey("good", "1")} good, ${findKey("bad", "2")} bad, ${findKey("neutral", "3")} neutral.` : (steps?.ready() || fields.ready())),
    problem: fields.problem,
  };
}

const words = (asked) => [asked.steps ? "step" : "", asked.spans ? "span" : ""].filter(Boolean).join(" or ");

page.kinds.single = { render };
