/* The questions of a rubric: scale, choice, yes or no. While a question has the focus, the keys of the number row are its alone, also those it has no
   option for and whatever a person has mapped to them: none of them reaches the verdict. A key is shown only where it acts now. */
import { announce, bindKey } from "../base/page.js";
import { makeKeyHint } from "./keys.js";
import { notices, say } from "./notices.js";
import { make, page } from "./page.js";

const KEYS = "1234567890-="; // one for each option a question can have; keymap.py keeps them from actions that act everywhere

/* [[what is sent, what is shown]…], as lab/labelling/labels/answers.py reads them: of a scale the number, of a choice its words. */
const listOptions = (question) => {
  if (question.kind === "yesno") return [["yes", "Yes"], ["no", "No"]];
  const choices = question.choices || [];
  if (question.kind === "scale") return (choices.length ? choices : [1, 2, 3, 4, 5]).map((label, index) => [index + 1, String(label)]);
  return choices.map((choice) => [String(choice), String(choice)]);
};
const nameQuestion = (question) => question.label || question.name;
const cutText = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
const describeKeys = (count) => (count < 10 ? `1–${count}` : ["1–9", ...KEYS.slice(9, count)].join(", "));

let named = 0; // radio buttons of two items must not share a group

/* choose(one) hears of an answer by key or pointer, change() of every other one. */
function makeQuestion(question, { choose, change, leave }) {
  const group = `rubric-${(named += 1)}`;
  const options = listOptions(question);
  const words = nameQuestion(question);
  const help = make("span", "rubric-help muted", make("kbd", "kbd", describeKeys(options.length)), " answer, ", make("kbd", "kbd", "Esc"), " back to the verdict");
  const legend = make("legend", "label", words, question.required ? make("span", "muted", " required") : null, " ", help);
  const box = make("fieldset", `rubric-question ${question.kind}`, legend);
  const inputs = options.map(([, text], index) => {
    const input = Object.assign(make("input"), { type: "radio", name: group, value: String(index) });
    box.append(make("label", "rubric-option", input, make("span", "", text), text !== KEYS[index] ? make("kbd", "kbd", KEYS[index]) : null));
    return input;
  });
  const error = make("p", "field-error");
  help.setAttribute("aria-hidden", "true"); // said when the question gets the focus
  box.append(error);
  const one = {
    question, box, error, legend,
    focus: () => (inputs.find((input) => input.checked) || inputs[0]).focus(),
    read: () => { const at = inputs.findIndex((input) => input.checked); return at < 0 ? null : options[at][0]; },
    fill: (value) => inputs.forEach((input, index) => { input.checked = value !== null && value !== undefined && options[index][0] === value; }),
  };
  const settle = (told) => { error.textContent = ""; page.changed(); told(one); };
  box.addEventListener("keydown", (event) => {
    pointing = false;
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // they move between the options here
    if (event.key === "Escape") { event.preventDefault(); leave(); }
    const at = KEYS.indexOf(event.key);
    if (at < 0) return;
    event.preventDefault();
    if (event.repeat) return; // a key held down would answer the next question, too
    if (!(at in inputs)) { say(`“${words}” has ${options.length} options: ${describeKeys(options.length)}. Esc goes back to the verdict.`); return; }
    inputs[at].checked = true;
    announce(`${words}: ${options[at][1]}`);
    settle(choose);
  });
  let pointing = false; // arrows pass over options on their way: only what is pointed at is decided
  box.addEventListener("pointerdown", () => { pointing = true; });
  box.addEventListener("change", () => {
    settle(change);
    if (pointing) page.decided();
  });
  box.addEventListener("focusin", (event) => {
    if (!box.contains(event.relatedTarget)) announce(`${words}${question.required ? ", required" : ""}. Keys ${describeKeys(options.length)} answer it. Escape goes back to the verdict.`);
  });
  return one;
}

/* For the list of keys: questions with as many options share a line. */
export function listQuestionKeys() {
  const lines = new Map();
  for (const question of page.queue.rubric || []) {
    const keys = describeKeys(listOptions(question).length);
    lines.set(keys, [...(lines.get(keys) || []), `“${cutText(nameQuestion(question))}”`]);
  }
  for (const [keys, questions] of lines) bindKey(keys, `Options of ${questions.slice(0, 3).join(", ")}${questions.length > 3 ? ` and ${questions.length - 3} more` : ""}, while it has the focus`, () => {});
  if (lines.size) bindKey("Esc", "From a question or a text field back to the verdict", () => {});
}

/* {element, focus, read, fill, ready, problem} or null when the queue asks nothing. */
export function makeRubric() {
  const leave = () => { notices.find("stage").focus({ preventScroll: true }); announce("Back at the verdict: its keys choose again"); };
  const questions = (page.queue.rubric || []).map((question) => makeQuestion(question, { choose: goOn, change: () => placeHint(), leave }));
  if (!questions.length) return null;
  const hint = makeKeyHint("rubric", "o");
  const element = make("div", "rubric", ...questions.map((one) => one.box));

  const findOpen = (from = 0) => [...questions.slice(from), ...questions.slice(0, from)].find((one) => one.read() === null);
  /* Where the key for the questions leads: in at the first open one, then from one to the next, at last out again. */
  function findNext(focused) {
    const at = questions.findIndex((one) => one.box.contains(focused));
    return at < 0 ? findOpen() || questions[0] : questions[at + 1] || null;
  }

  function placeHint(focused = document.activeElement) {
    const next = findNext(focused);
    hint.hidden = next === null;
    next?.legend.querySelector(".rubric-help").before(hint, " ");
  }

  /* An answer by key leads to the next open question, and from the last one back to the verdict. */
  function goOn(answered) {
    const open = findOpen(questions.indexOf(answered));
    if (open) open.focus();
    else leave();
    page.decided();
  }

  element.addEventListener("focusin", (event) => placeHint(event.target));
  element.addEventListener("focusout", (event) => { if (!element.contains(event.relatedTarget)) placeHint(null); });
  placeHint(null);
  return {
    element,
    focus() {
      const next = findNext(document.activeElement);
      if (next) next.focus();
      else leave();
    },
    read: () => Object.fromEntries(questions.filter((one) => one.read() !== null).map((one) => [one.question.name, one.read()])),
    fill(values) {
      for (const one of questions) one.fill(values?.[one.question.name]);
      placeHint();
    },
    ready() {
      const missing = questions.find((one) => one.question.required && one.read() === null);
      missing?.focus();
      return missing ? `Answer “${nameQuestion(missing.question)}” first.` : "";
    },
    problem(field, text) {
      const found = questions.find((one) => [one.question.name, `rubric.${one.question.name}`].includes(field));
      if (found) { found.error.textContent = text; found.focus(); }
      return Boolean(found);
    },
  };
}
