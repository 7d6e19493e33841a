/* From a chart to the text: a click on a chart pins its step in all of them, in the address and on the slider, and opens the step's rollouts
   beside the charts. Arrow keys on a chart move the pin, Enter opens the panel, Escape closes it. */
import { picks } from "../charts/picks.js";
import { announce } from "../base/page.js";
import { walkCards } from "../rollouts/card-keys.js";
import { overview } from "./overview.js";
import { stepBar } from "./steps.js";

const panel = document.getElementById("step-panel");

const body = panel.querySelector("[data-body]");
const title = document.getElementById("step-panel-title");
const state = stepBar.state;
let from = null; // what had the focus before the panel opened
let looked = null; // the chart whose point opened it
let busy = false;
let again = null;
let shown = "";

const isOpen = () => !panel.hidden;

function keepAddress() {
  const query = new URLSearchParams(location.search);
  const put = (name, value) => (value ? query.set(name, value) : query.delete(name));
  put("step", state.following || state.step === null ? "" : String(state.step));
  put("phase", state.phase && (!state.phases.length || state.phase !== state.phases[0].name) ? state.phase : "");
  put("panel", isOpen() ? "rollouts" : "");
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}

/* Pins a step (null: the newest again). The pin is at once where it was asked for; the server says which step with rollouts that is. */
async function pinStep(step, phase = state.phase) {
  const listed = phase === state.phase && step !== null && state.listed.length > 0;
  stepBar.set({ step: step ?? state.step, phase, following: step === null });
  overview.pin(step);
  if (isOpen()) await loadRollouts();
  if (!listed) await stepBar.look({ adopt: true });
  overview.pin(state.following ? null : state.step);
  keepAddress();
}

async function loadRollouts() {
  if (busy) { again = true; return; }
  busy = true;
  const query = new URLSearchParams({ part: "step" });
  if (state.phase) query.set("phase", state.phase);
  if (!state.following && state.step !== null) query.set("step", state.step);
  body.setAttribute("aria-busy", "true");
  try {
    const response = await fetch(`${panel.dataset.url}?${query}`).catch(() => null);
    if (response && response.ok) fillPanel(await response.text());
    else showFailure(response);
  } finally {
    body.setAttribute("aria-busy", "false");
    busy = false;
  }
  if (again) { again = null; await loadRollouts(); }
}

/* The server's fragment holds model text as text; scripts of a parsed document never run. */
function fillPanel(text) {
  const parsed = new DOMParser().parseFromString(text, "text/html");
  const feed = document.adoptNode(parsed.getElementById("step-feed"));
  body.replaceChildren(feed);
  if (window.htmx) htmx.process(body);
  const { step, phase, before, after, total } = feed.dataset;
  const known = (value) => (value === "" ? null : Number(value));
  stepBar.set({ step: known(step) ?? state.step, phase, before: known(before), after: known(after) });
  const phases = Object.fromEntries(state.phases.map(({ name, label }) => [name, label.toLowerCase()]));
  title.textContent = step === "" ? "Rollouts" : `Step ${step}${phase === "train" ? "" : `, ${phases[phase] || phase}`}`;
  if (shown !== `${step} ${phase}`) body.scrollTop = 0;
  shown = `${step} ${phase}`;
  for (const button of panel.querySelectorAll("[data-panel-go]")) button.disabled = state[button.dataset.panelGo] === null;
  if (step !== "") announce(`Step ${step}, ${total} rollouts`);
}

function showFailure(response) {
  const words = response ? `The server answered ${response.status}.` : "The server is unreachable.";
  body.replaceChildren(Object.assign(document.createElement("p"), { className: "muted", textContent: `The rollouts could not be loaded. ${words} Choose the step again.` }));
}

/* Makes room for the panel, or takes it back, without moving the chart that is looked at. */
function makeRoom(wide, figure) {
  const before = figure ? figure.getBoundingClientRect().top : 0;
  panel.hidden = !wide;
  document.body.classList.toggle("has-step-panel", wide);
  if (figure) scrollBy({ top: figure.getBoundingClientRect().top - before, behavior: "instant" });
}

async function openPanel(step, phase, figure = null) {
  if (!isOpen()) {
    from = document.activeElement;
    looked = figure;
    makeRoom(true, figure);
    title.textContent = "Rollouts";
    body.replaceChildren(Object.assign(document.createElement("p"), { className: "muted", textContent: "Loading…" }));
    overview.redraw();
  }
  title.focus({ preventScroll: true });
  await pinStep(step, phase);
}

function closePanel() {
  if (!isOpen()) return;
  const inside = panel.contains(document.activeElement);
  makeRoom(false, looked && looked.isConnected ? looked : null);
  shown = "";
  keepAddress();
  overview.redraw();
  if (inside) (from && from.isConnected ? from : document.querySelector(".chart-area"))?.focus({ preventScroll: true });
}

/* A metric of the held-out measurement is about held-out rollouts; any other about what the policy sampled to learn from. */
picks.show = (step, heldout, opens, figure) => {
  const first = state.phases[0] ? state.phases[0].name : "";
  const phase = heldout ? "heldout" : state.phase === "heldout" ? first : state.phase;
  if (opens) openPanel(step, phase, figure);
  else pinStep(step, phase);
};
/* A panel that follows the newest step moves on only while nobody reads in it. */
function followNewest() {
  const reads = panel.matches(":hover") || body.contains(document.activeElement) || body.scrollTop > 20;
  if (isOpen() && state.following && !reads && shown !== `${state.step} ${state.phase}`) loadRollouts();
}

stepBar.on((step, phase) => pinStep(step, phase), followNewest);
panel.querySelector("[data-close]").addEventListener("click", closePanel);
for (const button of panel.querySelectorAll("[data-panel-go]")) button.addEventListener("click", () => { const step = state[button.dataset.panelGo]; if (step !== null) pinStep(step); });
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || !isOpen() || document.querySelector("dialog[open]")) return;
  event.stopImmediatePropagation();
  closePanel();
}, true);
panel.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-show-all]");
  if (!button) return;
  const article = button.closest("[data-rollout]");
  const response = await fetch(`${article.dataset.tokens}?part=text`);
  if (!response.ok) return;
  const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
  article.querySelector("[data-plain]").replaceChildren(...document.adoptNode(parsed.body).childNodes);
  button.closest("[data-cut]").remove();
});
walkCards(() => (isOpen() ? panel : null));

stepBar.look({ adopt: true }).then(() => {
  overview.pin(state.following ? null : state.step);
  if (new URLSearchParams(location.search).get("panel") === "rollouts") openPanel(state.following ? null : state.step, state.phase);
});
