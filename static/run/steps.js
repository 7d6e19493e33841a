/* The one step slider of a run's pages, and the step that the tabs hand to each other. A page says what a step means to it with
   stepBar.on(handler): it is called with (step, phase), step null for "follow the newest"; stepBar.set(…) says what is shown now. */
import { liveRun } from "./live.js";

const root = document.getElementById("run");

const REFRESH_MS = 2000; // between two looks at where the rollouts of a training run lie
const MOST_TICKS = 150;
const KINDS = { measured: "held-out", checkpoint: "checkpoint", resume: "resumed", saved: "policy saved", alert: "alert", edit: "edit" };
const bar = document.getElementById("step-bar");
const findPart = (name) => document.getElementById(name);
const asked = new URLSearchParams(location.search);
const given = /^\d{1,10}$/.test(asked.get("step") || "") ? Number(asked.get("step")) : null;
const state = { phase: asked.get("phase") || "", step: given, first: null, last: null, before: null, after: null, listed: [], measured: [], marks: [], phases: [], following: given === null };
let act = null;
let newer = null; // told when rollouts have come
let sliding = 0;

/* What the server wrote into the bar, where it knew the steps. */
function readBar() {
  const current = findPart("step-phases").querySelector("[aria-current]");
  if (current) state.phase = current.dataset.phase;
  if (findPart("stepper").hidden && findPart("step-only").hidden) return;
  const slider = findPart("step-slider");
  const of = (name) => { const button = bar.querySelector(`[data-go=${name}]`); return button.disabled ? null : Number(button.value); };
  Object.assign(state, { first: Number(slider.min), last: Number(slider.max), step: Number(slider.value), before: of("before"), after: of("after") });
  state.following = findPart("step-follow").getAttribute("aria-pressed") === "true";
}

/* What the tabs carry on: the step that is pinned, and its phase. */
function buildCarriedQuery() {
  const query = new URLSearchParams();
  if (!state.following && state.step !== null) query.set("step", state.step);
  if (state.phase && (query.size || (state.phases.length && state.phases[0].name !== state.phase))) query.set("phase", state.phase);
  return query.size ? `?${query}` : "";
}

function carryStep() {
  for (const link of root.querySelectorAll("[data-carries]")) link.setAttribute("href", link.getAttribute("href").split("?")[0] + buildCarriedQuery());
}

/* The nearest step that has rollouts; the step itself where there are too many to list. */
function findNearestStep(step) {
  return state.listed.length ? state.listed.reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best)) : step;
}

/* The steps beside the chosen one. Where they are not listed they are taken to be as far away as they were from the step ``old``, until
   the server says where they are: a key that is pressed twice goes two steps. */
function findNeighbours(old) {
  if (state.step === null || state.last === null) return;
  if (!state.listed.length) {
    if (old === null || old === state.step) return;
    const [down, up] = [state.before === null ? 1 : old - state.before, state.after === null ? 1 : state.after - old];
    state.before = state.step > state.first ? Math.max(state.first, state.step - down) : null;
    state.after = state.step < state.last ? Math.min(state.last, state.step + up) : null;
    return;
  }
  state.before = state.listed.findLast((one) => one < state.step) ?? null;
  state.after = state.listed.find((one) => one > state.step) ?? null;
}

function changeState(changes) {
  const old = state.step;
  Object.assign(state, changes);
  if (!("before" in changes)) findNeighbours(old);
  carryStep();
  if (bar) drawBar();
}

function drawBar() {
  const none = state.step === null || state.last === null;
  const single = !none && state.first === state.last; // a slider from 0 to 0 says nothing
  findPart("stepper").hidden = none || single;
  findPart("step-only").hidden = !single;
  findPart("step-only").textContent = single ? `step ${state.step}, the only one${liveRun.isOpen() ? " so far" : ""}` : "";
  findPart("step-follow").hidden = none;
  drawPhases();
  findPart("step-follow").setAttribute("aria-pressed", String(state.following));
  if (none) { findPart("step-key").hidden = true; return; }
  const slider = findPart("step-slider");
  Object.assign(slider, { min: state.first, max: state.last, disabled: state.first === state.last });
  if (!sliding) { slider.value = state.step; findPart("step-number").value = state.step; }
  slider.setAttribute("aria-valuetext", `step ${state.step} of ${state.last}${state.following ? ", the newest" : ""}`);
  findPart("step-number").max = state.last;
  findPart("step-last").textContent = state.last;
  for (const button of bar.querySelectorAll("[data-go]")) {
    const missing = { first: "before", last: "after" }[button.dataset.go] || button.dataset.go;
    button.disabled = state[missing] === null;
  }
  drawTicks();
}

function drawPhases() {
  const box = findPart("step-phases");
  if (state.phases.length && box.children.length !== state.phases.length) {
    box.replaceChildren(...state.phases.map(({ name, label }) => {
      const link = Object.assign(document.createElement("a"), { textContent: label, href: `?phase=${encodeURIComponent(name)}` });
      link.dataset.phase = name;
      return link;
    }));
  }
  box.hidden = !box.children.length;
  for (const link of box.children) {
    if (link.dataset.phase === state.phase) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
}

let drawn = "";
function drawTicks() {
  const found = [...state.measured.slice(-MOST_TICKS).map((step) => ({ step, kind: "measured" })), ...state.marks.slice(-MOST_TICKS)];
  const inside = found.filter(({ step, kind }) => KINDS[kind] && step >= state.first && step <= state.last && state.first < state.last);
  const wanted = JSON.stringify([state.first, state.last, inside.map(({ step, kind }) => [step, kind])]);
  if (wanted === drawn) return;
  drawn = wanted;
  findPart("step-ticks").replaceChildren(...inside.map(({ step, kind }) => {
    const tick = Object.assign(document.createElement("span"), { className: `step-tick ${kind}` });
    tick.style.setProperty("--at", (step - state.first) / (state.last - state.first));
    return tick;
  }));
  const kinds = Object.keys(KINDS).filter((kind) => inside.some((one) => one.kind === kind));
  findPart("step-key").replaceChildren(...kinds.map((kind) => Object.assign(document.createElement("span"), { className: kind, textContent: KINDS[kind] })));
  findPart("step-key").hidden = !kinds.length;
}

function goToStep(step, phase = state.phase) { if (act) act(step, phase); }

/* Where rollouts lie by now; with ``adopt`` also the step the server finds for the one that is asked for. */
let asking = 0; // of several answers that move the step only the newest question's does
async function fetchSteps({ adopt = false, step = state.following ? null : state.step, phase = state.phase } = {}) {
  if (!bar) return null;
  const mine = adopt ? (asking += 1) : asking;
  const query = new URLSearchParams();
  if (step !== null) query.set("step", step);
  if (phase) query.set("phase", phase);
  const response = await fetch(`${bar.dataset.url}?${query}`).catch(() => null);
  if (!response || !response.ok) return null;
  const { first, last, before, after, listed, measured, marks, phases, ...found } = await response.json();
  if (adopt ? mine !== asking : state.phase && found.phase !== state.phase) return null;
  changeState({ first, last, listed, measured, marks, phases, ...(adopt || found.step === state.step ? { ...found, before, after } : {}) });
  return found;
}

let looking = 0;
function fetchStepsSoon() {
  if (looking) return;
  looking = setTimeout(() => { looking = 0; if (!document.hidden) fetchSteps({ adopt: state.following && root.dataset.tab !== "rollouts" }).then(() => newer && newer()); }, REFRESH_MS);
}

function listenToBar() {
  bar.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (link.id === "step-follow") goToStep(null);
    else goToStep(state.following ? null : state.step, link.dataset.phase);
  });
  bar.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = event.submitter ? state[event.submitter.dataset.go] : null;
    if (wanted !== null) goToStep(wanted);
  });
  findPart("step-slider").addEventListener("input", (event) => {
    const step = findNearestStep(Number(event.target.value));
    findPart("step-number").value = step;
    clearTimeout(sliding);
    sliding = setTimeout(() => { sliding = 0; goToStep(step); }, 150);
  });
  const typed = (event) => {
    const wanted = Number(event.target.value);
    if (event.target.value !== "" && Number.isSafeInteger(wanted) && wanted !== (state.following ? null : state.step)) goToStep(wanted);
  };
  findPart("step-number").addEventListener("change", typed);
  findPart("step-number").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault(); // else the form's first button would be taken for pressed
    typed(event);
  });
  liveRun.on("delta", (delta) => { if (delta.rollouts && delta.rollouts.count) fetchStepsSoon(); });
  liveRun.on("reset", fetchStepsSoon);
}

export const stepBar = { state, set: changeState, snap: findNearestStep, go: goToStep, look: fetchSteps, on(handler, onNewer = null) { act = handler; newer = onNewer; } };
if (bar) { readBar(); listenToBar(); }
carryStep();
