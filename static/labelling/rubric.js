/* The questions of a rubric: scale, choice, yes or no. With the focus in a question its number keys choose. */
import { makeKeyHint } from "./keys.js";
import { make, page } from "./page.js";

/* [[what is sent, what is shown]…], as lab/labelling/labels/answers.py reads them: of a scale the number, of a choice its words. */
const listOptions = (question) => {
  if (question.kind === "yesno") return [["yes", "Yes"], ["no", "No"]];
  const choices = question.choices || [];
  if (question.kind === "scale") return (choices.length ? choices : [1, 2, 3, 4, 5]).map((label, index) => [index + 1, String(label)]);
  return choices.map((choice) => [String(choice), String(choice)]);
};

let named = 0; // radio buttons of two items must not share a group

function makeQuestion(question) {
  const group = `rubric-${(named += 1)}`;
  const options = listOptions(question);
  const box = make("fieldset", `rubric-question ${question.kind}`, make("legend", "label", question.label || question.name, question.required ? make("span", "muted", " required") : null));
  const inputs = options.map(([, text], index) => {
    const input = Object.assign(make("input"), { type: "radio", name: group, value: String(index) });
    box.append(make("label", "rubric-option", input, make("span", "", text), index < 9 && text !== String(index + 1) ? make("kbd", "kbd", String(index + 1)) : null));
    return input;
  });
  const error = make("p", "field-error");
  box.append(error);
  box.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) event.stopPropagation(); // they move between the options here
    const index = Number(event.key) - 1;
    if (event.ctrlKey || event.metaKey || event.altKey || !(index in inputs)) return;
    event.preventDefault(); // the page's own number keys choose the answer
    inputs[index].checked = true;
    inputs[index].focus();
    error.textContent = "";
    page.changed();
  });
  box.addEventListener("change", () => { error.textContent = ""; page.changed(); });
  return {
    question, box, error,
    focus: () => (inputs.find((input) => input.checked) || inputs[0]).focus(),
    read: () => { const at = inputs.findIndex((input) => input.checked); return at < 0 ? null : options[at][0]; },
    fill: (value) => inputs.forEach((input, index) => { input.checked = value !== null && value !== undefined && options[index][0] === value; }),
  };
}

/* {element, read, fill, ready, problem} or null when the queue asks nothing. */
export function makeRubric() {
  const questions = (page.queue.rubric || []).map(makeQuestion);
  if (!questions.length) return null;
  questions[0].box.querySelector("legend").append(" ", makeKeyHint("rubric", "o"));
  return {
    element: make("div", "rubric", ...questions.map((one) => one.box)),
    focus: () => (questions.find((one) => one.read() === null) || questions[0]).focus(),
    read: () => Object.fromEntries(questions.filter((one) => one.read() !== null).map((one) => [one.question.name, one.read()])),
    fill: (values) => { for (const one of questions) one.fill(values?.[one.question.name]); },
    ready() {
      const missing = questions.find((one) => one.question.required && one.read() === null);
      return missing ? `Answer “${missing.question.label || missing.question.name}” first.` : "";
    },
    problem(field, text) {
      const found = questions.find((one) => [one.question.name, `rubric.${one.question.name}`].includes(field));
      if (found) { found.error.textContent = text; found.focus(); }
      return Boolean(found);
    },
  };
}
