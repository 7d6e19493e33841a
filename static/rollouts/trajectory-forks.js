/* The tokens at which the policy was least certain, to jump through: where another choice would have led elsewhere. */
import { formatNumber } from "../base/numbers.js";
import { announce, bindKey, showToast } from "../base/page.js";
import { tokenOverlays } from "./tokens.js";
import { findLargest, findUnitEnd } from "./trajectory-data.js";
import { reader } from "./trajectory-reader.js";

const MOST = 20;
const CONTEXT = 18; // characters before and after

const list = document.getElementById("forks");
let forks = [];

export function fillForks(data) {
  forks = findLargest(data, data.entropies, MOST);
  const rows = forks.map((position) => {
    const unit = data.units[data.unitOf[position]];
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fork";
    button.dataset.position = position;
    const words = (className, text) => Object.assign(document.createElement("span"), { className, textContent: text });
    const plain = (text) => tokenOverlays.visible(text, false).replace(/\s+/g, " ");
    const text = document.createElement("span");
    text.className = "fork-text";
    text.append(plain(data.text.slice(Math.max(0, unit[4] - CONTEXT), unit[4])));
    text.append(words("fork-token", tokenOverlays.visible(unit[0], true).replace(/\n/g, "") || "␀"));
    const end = findUnitEnd(unit);
    text.append(plain(data.text.slice(end, end + CONTEXT)));
    const logprob = data.logprobs[position];
    button.append(text, words("num", formatNumber(data.entropies[position])), words("num", Number.isNaN(logprob) ? "n/a" : tokenOverlays.percent(Math.exp(logprob))), words("num muted", String(position)));
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  list.replaceChildren(...rows);
  document.getElementById("forks-section").hidden = !rows.length;
}

list.addEventListener("click", (event) => {
  const button = event.target.closest("[data-position]");
  if (button) reader.pin(Number(button.dataset.position), { scroll: true });
});

/* Goes to the next of them in the text, around its ends. */
function jumpToFork(by) {
  const places = [...forks].sort((a, b) => a - b);
  if (!places.length) { showToast("No entropies were stored with this rollout.", "info", 3); return; }
  const here = reader.state.token ?? (by > 0 ? -1 : Infinity);
  const next = by > 0 ? places.find((one) => one > here) ?? places[0] : places.findLast((one) => one < here) ?? places[places.length - 1];
  reader.pin(next, { scroll: true });
  announce(`Token ${next}, number ${forks.indexOf(next) + 1} by entropy`);
}

bindKey("e", "Next of the most uncertain tokens", () => jumpToFork(1));
bindKey("E", "The one before", () => jumpToFork(-1));
