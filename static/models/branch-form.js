/* The form of a branch, on a page of its own or in the dialog of a rollout's page: asks the chosen checkpoint which tokens were likely. */
import { tokenOverlays } from "../rollouts/tokens.js";

const AGAIN = 500; // ms between looks at an answer that is not there yet

function showWords(form, text) {
  const words = Object.assign(document.createElement("p"), { className: "small muted", textContent: text });
  form.querySelector("[data-alternatives-list]").replaceChildren(words);
}

function makeChoice(form, token) {
  const item = document.createElement("li");
  const label = document.createElement("label");
  if (String(token.id) === form.dataset.stored) label.className = "own";
  const radio = Object.assign(document.createElement("input"), { type: "radio", name: "choice", value: "token" });
  radio.dataset.id = token.id;
  const text = Object.assign(document.createElement("span"), { className: "token", textContent: tokenOverlays.visible(token.shown, false), title: `id ${token.id}` });
  label.append(radio, text, Object.assign(document.createElement("span"), { className: "muted num", textContent: tokenOverlays.percent(token.probability) }));
  item.append(label);
  return item;
}

function showAlternatives(form, state) {
  const list = Object.assign(document.createElement("ul"), { className: "branch-alternatives" });
  list.append(...state.tokens.map((token) => makeChoice(form, token)));
  const own = `Under this checkpoint: entropy ${state.entropy.toFixed(3)} nats, the sampled token has ${tokenOverlays.percent(state.own.probability)} (rank ${state.own.rank}).`;
  form.querySelector("[data-alternatives-list]").replaceChildren(Object.assign(document.createElement("p"), { className: "small muted", textContent: own }), list);
  const wanted = form.elements.alternative.value;
  const again = wanted && list.querySelector(`[data-id="${CSS.escape(wanted)}"]`);
  if (again) again.checked = true;
}

async function followAlternatives(form, asked) {
  const body = new FormData();
  for (const name of ["csrfmiddlewaretoken", "token", "checkpoint"]) body.set(name, form.elements[name].value);
  let answer = await fetch(form.dataset.alternatives, { method: "POST", body, headers: { Accept: "application/json" } });
  let state = await answer.json();
  if (!answer.ok) throw new Error(state.message || "The checkpoint could not be asked.");
  const { url } = state;
  while (state.open) {
    await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
    if (!form.isConnected || form.dataset.asked !== asked) return;
    answer = await fetch(url, { headers: { Accept: "application/json" } });
    if (answer.ok) state = await answer.json();
  }
  if (form.dataset.asked !== asked) return;
  if (state.tokens.length) showAlternatives(form, state);
  else showWords(form, `${state.error || "No answer."} You can keep the token or let the policy choose.`);
}

async function loadAlternatives(form) {
  const asked = form.elements.checkpoint.value;
  form.dataset.asked = asked;
  showWords(form, "Asking the checkpoint for alternatives…");
  try {
    await followAlternatives(form, asked);
  } catch (error) {
    if (form.dataset.asked === asked) showWords(form, `${error.message} You can keep the token or let the policy choose.`);
  }
}

export function startBranchForm(root) {
  const form = root.querySelector("[data-branch-form]");
  if (!form) return;
  form.addEventListener("change", (event) => {
    if (event.target.name === "checkpoint") loadAlternatives(form);
    if (event.target.name === "choice") form.elements.alternative.value = event.target.dataset.id ?? "";
  });
  loadAlternatives(form);
}

if (document.querySelector(".branch-page")) startBranchForm(document);
