/* The keys of the labelling page: actions with a key each, which a person may map to others. The handler of an action is that of the item shown. */
import { bindKey, showToast } from "../base/page.js";
import { make, page, setPressed } from "./page.js";
import { store } from "./store.js";

const RESERVED = new Map([["?", "opens the list of keys"], [" ", "presses the button that has the focus"]]);
const actions = new Map(); // id → {id, key, also, label, run, entry}
let mapping = page.key_map; // action → key, where it is not the usual one

export const findKey = (id, key) => { const own = mapping[id]; return typeof own === "string" && [...own].length === 1 ? own : key; };

/* Of the number row: a question of the rubric that has the focus takes it. */
const markRowKey = (shown) => shown.classList.toggle("row-key", /^[0-9=-]$/.test(shown.textContent));

export function makeKeyHint(id, key) {
  const made = make("kbd", "kbd", findKey(id, key));
  made.dataset.keyOf = id;
  made.dataset.keyOwn = key;
  markRowKey(made);
  return made;
}

/* A choice button with its key on it. */
export function makeChoiceButton(id, key, text, run) {
  const made = make("button", "button choice", make("span", "", text), " ", makeKeyHint(id, key));
  made.type = "button";
  made.dataset.choice = id;
  setPressed(made, false);
  made.addEventListener("click", run);
  return made;
}

/* Registers each action once; later items only take over what it runs. */
export function useKeys(list) {
  for (const { id, key, also = [], label, once = false, run } of list) {
    const known = actions.get(id);
    if (known) { known.run = run; continue; }
    const action = { id, key, also, label, run };
    const press = (event) => { if (!(once && event.repeat)) action.run(event); };
    actions.set(id, action);
    action.entry = bindKey(findKey(id, key), label, press);
    for (const other of also) bindKey(other, label, press);
  }
}

// ---- the dialog

function openKeyDialog() {
  const dialog = document.getElementById("key-map");
  const rows = [...actions.values()].filter((action) => action.key.length === 1).map((action) => {
    const input = Object.assign(make("input", "input mono"), { value: findKey(action.id, action.key), maxLength: 2, autocomplete: "off", spellcheck: false });
    input.dataset.action = action.id;
    const label = make("label", "key-row", make("span", "", action.label), input, make("span", "field-error"));
    return label;
  });
  dialog.querySelector("[data-key-rows]").replaceChildren(...rows);
  dialog.showModal();
}

/* {id: why not} of a mapping {id: key} of all actions. */
function findConflicts(wanted) {
  const found = {};
  const fixed = new Map();
  for (const action of actions.values()) for (const key of action.key.length > 1 ? [action.key, ...action.also] : action.also) fixed.set(key, action.label);
  const seen = new Map();
  for (const [id, key] of Object.entries(wanted)) {
    if ([...key].length !== 1) found[id] = "One character, please.";
    else if (RESERVED.has(key)) found[id] = `This key ${RESERVED.get(key)}.`;
    else if (fixed.has(key)) found[id] = `Always means “${fixed.get(key)}”.`;
    else if (seen.has(key)) for (const [one, other] of [[id, seen.get(key)], [seen.get(key), id]]) found[one] = `Also given to “${actions.get(other).label}”.`;
    else seen.set(key, id);
  }
  return found;
}

function applyMapping(own) {
  mapping = own;
  for (const action of actions.values()) action.entry.combination = findKey(action.id, action.key);
  refreshKeys();
}

/* Shows {id: why not} at the inputs; whether there was anything to show. */
function showConflicts(form, problems) {
  const inputs = [...form.querySelectorAll("[data-action]")];
  for (const input of inputs) {
    const why = problems[input.dataset.action] || "";
    input.nextElementSibling.textContent = why;
    input.setAttribute("aria-invalid", String(Boolean(why)));
  }
  const first = inputs.find((input) => problems[input.dataset.action]);
  first?.focus();
  return Boolean(first);
}

/* They go with the person. The dialog stays open until the lab has them. */
async function saveKeys(form, own, words) {
  const { status, body } = await store.ask(page.urls.keys, { keys: own });
  if (status === 422 && showConflicts(form, Object.fromEntries((body.problems || []).map((one) => [one.field, `${one.message} ${one.fix || ""}`.trim()])))) return;
  const said = form.querySelector("[data-keys-said]");
  said.textContent = status === 200 ? "" : status === 0 ? "The server is unreachable, so nothing is kept yet. Save again." : body.message || "Your keys could not be kept. Reload the page and try again.";
  if (status !== 200) return;
  applyMapping(body.keys);
  form.closest("dialog").close();
  showToast(words, "success", 3);
}

export function refreshKeys() {
  for (const shown of document.querySelectorAll("[data-key-of]")) {
    shown.textContent = findKey(shown.dataset.keyOf, shown.dataset.keyOwn);
    markRowKey(shown);
  }
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("#key-map form");
  if (!form || event.submitter?.value === "cancel") return;
  event.preventDefault();
  if (event.submitter?.value === "reset") { saveKeys(form, {}, "The keys are the usual ones again."); return; }
  const inputs = [...form.querySelectorAll("[data-action]")];
  if (showConflicts(form, findConflicts(Object.fromEntries(inputs.map((input) => [input.dataset.action, input.value]))))) return;
  // keys of actions that only other queues of this kind have stay as they are
  const own = { ...mapping, ...Object.fromEntries(inputs.map((input) => [input.dataset.action, input.value])) };
  saveKeys(form, Object.fromEntries(Object.entries(own).filter(([id, key]) => key !== actions.get(id)?.key)), "Your keys are kept, for every browser you sign in with.");
});

document.addEventListener("click", (event) => { if (event.target.closest("[data-map-keys]")) openKeyDialog(); });

document.addEventListener("click", (event) => { const button = event.target.closest("[data-run]"); if (button) actions.get(button.dataset.run)?.run(event); });
