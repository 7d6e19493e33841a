/* The launch form: batch arithmetic while typing, problems at their field, the check after a pause, no lost changes, no second launch. */
import { announce, bindKey } from "../base/page.js";
import "./find-option.js";

const form = document.querySelector("form[data-launch]");
const CHECK_MS = 700;
let dirty = false;
let sending = false;
let timer = 0;

const listInputs = () => [...form.elements].filter((input) => input.name && input.type !== "hidden");
const isShown = (input) => !input.closest(".option-body") || input.closest(".option").querySelector("label > input").checked;
const findErrorPlace = (name) => form.querySelector(`[data-error-for="${CSS.escape(name)}"]`);

function showProblem(name, text) {
  const error = findErrorPlace(name);
  if (error && error.textContent !== text) error.textContent = text;
  for (const input of listInputs()) {
    if (input.name !== name) continue;
    if (text) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  return Boolean(error);
}

/* What is wrong with an input by its own bounds, in words; empty when nothing is. */
function findProblem(input) {
  if (!input.willValidate || input.type === "radio" || !isShown(input)) return "";
  const value = input.type === "number" ? Number(input.value) : NaN;
  const validity = input.validity;
  const standard = input.closest("[data-default]")?.dataset.default;
  const back = standard ? ` The default is ${standard}.` : "";
  if (validity.badInput) return `This is not a number.${back}`;
  if (validity.valueMissing) return `This is empty.${back}`;
  if (validity.rangeUnderflow) return `The smallest value is ${input.min}.${back}`;
  if (validity.rangeOverflow) return `The largest value is ${input.max}.${back}`;
  if (input.dataset.above && input.value && value <= Number(input.dataset.above)) return `It must be more than ${input.dataset.above}.${back}`;
  if (input.dataset.below && input.value && value >= Number(input.dataset.below)) return `It must be less than ${input.dataset.below}.${back}`;
  if (validity.stepMismatch) return `Use a whole number.${back}`;
  if (validity.tooShort || validity.tooLong || validity.patternMismatch) return "This does not have the right form.";
  return "";
}

function readSetting(stage, key) {
  const input = form.elements[`stages.${stage.dataset.stage}.training.${key}`];
  if (!input || input.value === "") return null;
  const value = Number(input.value);
  return Number.isFinite(value) ? value : null;
}

const formatCount = (value) => Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");

/* Words and numbers of one stage, as [text, strong?] pairs; a contradiction is marked. The same sums as trainers/contract/batches.py. */
function describeBatches(stage) {
  const steps = readSetting(stage, "max_steps");
  const batch = readSetting(stage, "per_device_train_batch_size");
  const accumulation = readSetting(stage, "gradient_accumulation_steps") ?? 1;
  if (!(steps > 0 && batch > 0 && accumulation > 0)) return [];
  const sequences = batch * accumulation;
  const own = form.elements.dataset?.value; // a file, whose rows only the check counts
  const group = readSetting(stage, "num_generations");
  if (own && group === null) {
    const rows = { sft: "demonstrations", gkd: "demonstrations", kto: "answers", "online-dpo": "prompts" }[stage.dataset.trainer] ?? "pairs";
    return [[formatCount(sequences), true], ` ${rows} a step, `, [formatCount(steps * sequences), true], ` in ${formatCount(steps)} steps, from the chosen file`];
  }
  if (readSetting(stage, "demonstrations") !== null) {
    const epochs = (steps * sequences) / Math.max(1, readSetting(stage, "demonstrations") ?? 1);
    return [[formatCount(sequences), true], " demonstrations a step, ", [formatCount(steps * sequences), true], ` in ${formatCount(steps)} steps: ${epochs.toFixed(2)} epochs over the task's`];
  }
  if (readSetting(stage, "sampled_prompts") !== null) {
    const answers = (readSetting(stage, "sampled_prompts") ?? 0) * (readSetting(stage, "samples_per_prompt") ?? 0);
    return [[formatCount(sequences), true], ` ${stage.dataset.trainer === "kto" ? "answers" : "pairs"} a step for ${formatCount(steps)} steps, out of `, [formatCount(answers), true], " sampled answers"];
  }
  const micro = readSetting(stage, "steps_per_generation") ?? accumulation;
  const iterations = readSetting(stage, "num_iterations") ?? 1;
  if (group === null && readSetting(stage, "prompts") !== null) {
    const total = 2 * steps * sequences;
    return [[formatCount(sequences), true], " prompts a step, two completions each; ", [formatCount(total), true], ` rollouts in ${formatCount(steps)} steps`];
  }
  if (!(group > 0 && micro > 0 && iterations > 0)) return [];
  const generation = batch * micro;
  if (generation % group) return [[`${formatCount(generation)} completions cannot be split into groups of ${formatCount(group)}.`, "bad"]];
  const total = Math.ceil((steps * accumulation * batch) / (generation * iterations)) * generation;
  const tokens = sequences * (readSetting(stage, "max_completion_length") ?? 0);
  return [[formatCount(sequences), true], " completions a step = ", [formatCount(sequences / group), true], ` prompts × groups of ${formatCount(group)}; `,
    [formatCount(total), true], ` rollouts in ${formatCount(steps)} steps; at most ${formatCount(tokens)} tokens a step`];
}

const formatBytes = (value) => (value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB` : value >= 1e6 ? `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)} MB` : `${Math.max(1, Math.round(value / 1e3))} kB`);

/* Sampled rollouts of a stage, the held-out ones with them, and the tokens of the longest. The same sums as trainers/contract/batches.py. */
function countStoredRollouts(stage) {
  const steps = readSetting(stage, "max_steps") ?? 0;
  const evaluation = (key) => Number(form.elements[`stages.${stage.dataset.stage}.evaluation.${key}`]?.value) || 0;
  const between = evaluation("every") ? Math.floor((steps - 1) / evaluation("every")) : 0;
  const heldout = evaluation("prompts") ? (between + 2) * evaluation("prompts") : 0;
  const longest = readSetting(stage, "max_completion_length") ?? readSetting(stage, "max_length") ?? 0;
  if (readSetting(stage, "num_generations") === null) {
    const sampled = form.elements.dataset?.value ? 0 : (readSetting(stage, "sampled_prompts") ?? 0) * (readSetting(stage, "samples_per_prompt") ?? 0);
    const online = readSetting(stage, "prompts") === null ? 0 : 2 * steps * (readSetting(stage, "per_device_train_batch_size") ?? 0) * (readSetting(stage, "gradient_accumulation_steps") ?? 1);
    return { rollouts: sampled + online + heldout, longest };
  }
  const batch = readSetting(stage, "per_device_train_batch_size") ?? 0;
  const accumulation = readSetting(stage, "gradient_accumulation_steps") ?? 1;
  const generation = batch * (readSetting(stage, "steps_per_generation") ?? accumulation);
  const iterations = readSetting(stage, "num_iterations") ?? 1;
  return { rollouts: generation ? Math.ceil((steps * accumulation * batch) / (generation * iterations)) * generation + heldout : heldout, longest };
}

/* What alternatives take in the database: at each token 8 bytes an alternative and 2 for the rank. */
function showAlternatives() {
  const line = form.querySelector("[data-alternatives]");
  const share = Number(form.elements["telemetry.alternatives_share"]?.value);
  const k = Number(form.elements["telemetry.alternatives"]?.value);
  if (!line) return;
  if (!(share > 0 && share <= 1 && k >= 1)) { line.textContent = share === 0 ? "No alternatives are stored." : ""; return; }
  const stages = [...form.querySelectorAll("[data-stage]")].map(countStoredRollouts);
  const each = Math.max(...stages.map(({ longest }) => longest)) * (8 * k + 2);
  const rollouts = stages.reduce((sum, stage) => sum + Math.round(share * stage.rollouts), 0);
  const all = stages.reduce((sum, stage) => sum + Math.round(share * stage.rollouts) * stage.longest * (8 * k + 2), 0);
  line.textContent = `About ${formatCount(rollouts)} rollouts with alternatives: up to ${formatBytes(each)} per rollout, ${formatBytes(all)} for this ${stages.length > 1 ? "chain" : "run"}.`;
}

function showArithmetic() {
  showAlternatives();
  for (const stage of form.querySelectorAll("[data-stage]")) {
    const line = stage.querySelector("[data-arithmetic]");
    line.replaceChildren(...describeBatches(stage).map((part) => {
      if (typeof part === "string") return document.createTextNode(part);
      const [text, tone] = part;
      return Object.assign(document.createElement(tone === "bad" ? "span" : "strong"), { textContent: text, className: tone === "bad" ? "bad" : "" });
    }));
  }
}

function openFolds(input) {
  for (let fold = input.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

function focusSetting(name) {
  const input = listInputs().find((item) => item.name === name && (item.type !== "radio" || item.checked)) || listInputs().find((item) => item.name === name);
  const target = input || document.getElementById(`id-${name}`); // a card of a method has no input of its own
  if (!target) return;
  openFolds(target);
  target.focus({ preventScroll: true });
  target.closest(".field, .option, .stack-card, fieldset").scrollIntoView({ block: "center" });
}

function checkSoon(wait = CHECK_MS) {
  clearTimeout(timer);
  timer = setTimeout(() => htmx.trigger(form, "check"), wait);
}

form.addEventListener("input", (event) => {
  if (event.target.form !== form) return; // a search on the page
  dirty = true;
  if (event.target.getAttribute("aria-invalid") || findErrorPlace(event.target.name)?.textContent) showProblem(event.target.name, findProblem(event.target));
  showArithmetic();
  checkSoon();
});

form.addEventListener("focusout", (event) => {
  if (event.target.name && event.target.matches("input, select") && event.target.type !== "radio" && !findErrorPlace(event.target.name)?.textContent) showProblem(event.target.name, findProblem(event.target));
});

/* Enter in the search for a method adds it instead of launching. */
form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing || event.ctrlKey || event.metaKey || !event.target.matches("[data-add], [data-save] input")) return;
  event.preventDefault();
  const button = event.target.dataset.add ? document.getElementById(event.target.dataset.add) : form.querySelector("[data-saves]");
  button.click();
});

/* From anywhere on the page, a text of several lines included. */
const launchNow = () => form.requestSubmit(form.querySelector("[data-submit]"));
bindKey("Ctrl Enter", "Launch", launchNow);
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  launchNow();
});

form.addEventListener("submit", (event) => {
  if (sending) { event.preventDefault(); return; }
  if (event.submitter && event.submitter.matches("[data-saves]")) { sending = true; return; }
  const wrong = listInputs().map((input) => [input.name, findProblem(input)]).filter(([, text]) => text);
  if (wrong.length) {
    event.preventDefault();
    for (const [name, text] of wrong) showProblem(name, text);
    const banner = document.getElementById("form-errors");
    banner.hidden = false;
    banner.querySelector("[data-error-summary]").textContent = `Nothing was launched. ${wrong.length} setting${wrong.length > 1 ? "s" : ""} below cannot be used.`;
    focusSetting(wrong[0][0]);
    return;
  }
  sending = true;
  const button = form.querySelector("[data-submit]");
  button.setAttribute("aria-disabled", "true");
  button.lastChild.textContent = "Launching…";
});

/* Back from the run page: the form is alive again. */
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
window.addEventListener("beforeunload", (event) => { if (dirty && !sending) event.preventDefault(); });

/* The method section is new: what was focused may be gone, and the settings are checked as they are now. */
function handleNewMethods(id) {
  dirty = true;
  const section = document.getElementById(id);
  if (document.activeElement === document.body) (section.querySelector("[data-add]") || section.querySelector("select")).focus();
  checkSoon(0);
}

/* Problems the server found go to their fields; those it no longer finds leave, unless the input itself objects. */
document.addEventListener("htmx:afterSwap", (event) => {
  const composer = form.querySelector("[data-composer][data-said]");
  if (composer) {
    announce(composer.dataset.said);
    delete composer.dataset.said;
  }
  if (event.detail.target.matches("[data-composer], #more-rewards")) { handleNewMethods(event.detail.target.id); return; }
  const panel = document.getElementById("preflight");
  if (panel.dataset.checked !== "yes") return;
  const found = new Map();
  for (const item of panel.querySelectorAll("[data-problem]")) found.set(item.dataset.problem, [found.get(item.dataset.problem), item.dataset.text].filter(Boolean).join(" "));
  for (const error of form.querySelectorAll("[data-error-for]:not([data-until-typed])")) { // what somebody is about to add is no part of what was checked
    const name = error.dataset.errorFor;
    const input = listInputs().find((item) => item.name === name);
    showProblem(name, found.get(name) || (input && error.textContent ? findProblem(input) : ""));
  }
  if (!found.size) document.getElementById("form-errors").hidden = true;
  announce(found.size ? `${found.size} setting${found.size > 1 ? "s" : ""} cannot be used` : "The settings can be launched");
});

/* A warning's suggestion goes into its input, as if it had been typed. */
function takeSuggestion(button) {
  const input = listInputs().find((item) => item.name === button.dataset.use);
  input.value = button.dataset.value;
  input.dispatchEvent(new Event("input", { bubbles: true }));
  focusSetting(input.name);
}

/* Values that go together, and those of all warnings: switches and texts, each as if it had been changed by hand. */
function takeValues(button) {
  const values = Object.entries(JSON.parse(button.dataset.useAll));
  for (const [name, value] of values) {
    const input = listInputs().find((item) => item.name === name);
    if (!input) continue;
    if (input.type === "checkbox") input.checked = value;
    else input.value = value;
    openFolds(input);
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }
  if (values.length) focusSetting(values[0][0]);
}

document.addEventListener("click", (event) => {
  const all = event.target.closest("[data-use-all]");
  if (all) takeValues(all);
  const use = event.target.closest("[data-use]");
  if (use) takeSuggestion(use);
  const jump = event.target.closest("[data-jump]");
  if (jump) { event.preventDefault(); focusSetting(jump.dataset.jump); }
});

showArithmetic();
const first = [...form.querySelectorAll("[data-error-for]")].find((error) => error.textContent.trim());
if (first) { dirty = true; focusSetting(first.dataset.errorFor); }
