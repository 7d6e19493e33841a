/* A sampling or a branch: its answers as tokens while they are written, by a socket, and by asking again where that is not to be had. */
import { formatNumber } from "../base/numbers.js";
import { announce } from "../base/page.js";
import { LabSocket } from "../base/socket.js";
import { tokenCards, tokenOverlays } from "../rollouts/tokens.js";

const head = document.querySelector("[data-sampling]");

const ASK_AGAIN = 2000; // ms between questions while there is no socket
const columns = [...document.querySelectorAll("[data-samples]")];
const overlays = document.querySelector("[data-overlays]");
let view = new URLSearchParams(location.search).get("tokens") ?? "entropy";
let state = JSON.parse(document.getElementById("sampling-state").textContent);
let heard = 0; // messages of the socket: newer than what was asked for before them
let again = 0;

function makeArticle(number) {
  const made = document.createElement("article");
  made.className = "card play-sample";
  made.dataset.rollout = "";
  if (head.dataset.noun) made.id = `continuation-${number}`;
  const header = Object.assign(document.createElement("header"), { className: "row small muted" });
  const box = Object.assign(document.createElement("div"), { className: "completion units", tabIndex: 0 });
  box.dataset.units = "";
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `Tokens of completion ${number + 1}; arrow keys move from one to the next`);
  made.append(header, box);
  return made;
}

function describeEnding(sample, open) {
  if (open) return "";
  return sample.finish_reason === "stop" ? ", stopped (EOS)" : ", cut off";
}

function describeSample(sample) {
  const ending = describeEnding(sample, state.open);
  if (sample.place === undefined) return `Completion ${sample.number + 1}: ${sample.tokens} token${sample.tokens === 1 ? "" : "s"}${ending}`;
  const parts = [`Continuation ${sample.number + 1}: ${sample.tokens - sample.kept} new token${sample.tokens - sample.kept === 1 ? "" : "s"}${ending}`];
  if (sample.reward !== null) parts.push(`reward ${formatNumber(sample.reward)}`);
  if (sample.against !== null) parts.push(`${sample.against < 0 ? "−" : "+"}${formatNumber(Math.abs(sample.against))} against the group's mean`);
  for (const [name, value] of Object.entries(sample.rewards)) parts.push(`${name} ${value === null ? "n/a" : formatNumber(value)}`);
  if (sample.problem) parts.push(sample.problem);
  if (sample.rollout) parts.push("in a queue");
  return parts.join(" · ");
}

/* What every continuation begins with is dimmed, the token at the place marked. */
function markPlace(card, sample) {
  for (const span of card.querySelectorAll("[data-unit]")) {
    const unit = sample.units[span.dataset.unit];
    span.classList.toggle("kept", unit[1] + unit[2] <= sample.kept);
    if (unit[1] <= sample.place && sample.place < unit[1] + unit[2]) { span.classList.add("branch-point"); span.hidden = false; }
  }
}

function drawSamples() {
  const articles = [];
  state.sides.forEach((side, place) => {
    const column = columns[place];
    column.closest("section").querySelector("[data-device]").textContent = side.device ? `on ${side.device}` : "";
    if (!side.samples.length) return;
    if (column.children.length !== side.samples.length || !column.firstElementChild.matches("[data-rollout]")) column.replaceChildren(...side.samples.map((sample) => makeArticle(sample.number)));
    side.samples.forEach((sample, row) => {
      const card = column.children[row];
      card.toggleAttribute("data-writing", state.open && sample.finish_reason !== "stop");
      card.firstElementChild.textContent = describeSample(sample);
      sample.trains = false; // a completion that is in no loss
      tokenCards.build(card, sample);
      if (sample.units && sample.place !== undefined) markPlace(card, sample);
      articles.push(card);
    });
  });
  colourTokens(articles);
}

function colourTokens(articles = [...document.querySelectorAll("[data-rollout]")]) {
  const legend = document.querySelector("[data-legend]");
  document.querySelector("[data-sides]").className = `play-columns${view ? ` view-${view}` : ""}`;
  for (const button of overlays.children) button.setAttribute("aria-pressed", String(button.value === view));
  if (!view || !articles.length) {
    legend.hidden = true;
    for (const span of document.querySelectorAll("[data-unit]")) span.className = span.className.replace(/ level-\d( negative)?/, "");
    return;
  }
  legend.replaceChildren(...tokenOverlays.legendParts(view, tokenCards.colour(articles, view), "this page"));
  legend.hidden = false;
}

function showState() {
  const chip = document.querySelector("[data-sampling-status]");
  if (chip.textContent !== state.status) announce(`${head.dataset.noun ?? "Sampling"} ${state.status}`);
  chip.textContent = chip.dataset.status = state.status;
  const error = document.querySelector("[data-sampling-error]");
  error.hidden = !state.error;
  error.textContent = state.error;
  for (const part of document.querySelectorAll("[data-while-open]")) part.hidden = !state.open;
  for (const part of document.querySelectorAll("[data-when-done]")) part.hidden = state.open || state.status === "failed";
  const facts = document.querySelector("[data-place-facts]");
  if (facts && state.entropy !== null) facts.textContent = `at the token, under this checkpoint: entropy ${formatNumber(state.entropy)} nats${state.probability === null ? "" : `, probability of the chosen token ${formatNumber(state.probability)}`}`;
  if (state.chosen) document.querySelector("[data-chosen]").textContent = state.chosen;
  const note = document.querySelector("[data-sampling-note]");
  if (note) { note.hidden = !state.note; note.textContent = state.note; }
  drawSamples();
}

async function askState() {
  if (!state.open || socket.isOpen) return;
  clearTimeout(again);
  const before = heard;
  try {
    const answer = await fetch(head.dataset.stateUrl, { headers: { Accept: "application/json" } });
    const found = answer.ok ? await answer.json() : null;
    if (found && before === heard) { state = found; showState(); }
  } catch { /* the next question */ }
  clearTimeout(again);
  again = setTimeout(askState, ASK_AGAIN);
}

const socket = new LabSocket(head.dataset.socket, {
  onMessage(message) {
    if (message.type !== "sampling") return;
    heard += 1;
    state = message;
    showState();
    if (!state.open) socket.disconnect();
  },
  onClose(code) { if (!code) askState(); },
});

function chooseOverlay(wanted) {
  view = wanted;
  const asked = new URLSearchParams(location.search);
  asked.set("tokens", view);
  history.replaceState(null, "", `${location.pathname}?${asked}`);
  colourTokens();
}

overlays.addEventListener("click", (event) => { if (event.target.matches("button")) chooseOverlay(event.target.value); });
document.querySelector("[data-next-overlay]").addEventListener("click", () => {
  const names = [...overlays.children].map((button) => button.value);
  chooseOverlay(names[(names.indexOf(view) + 1) % names.length]);
});
showState();
if (state.open) socket.connect();
