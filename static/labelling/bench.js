/* The benches of quality by keyboard: deciding conflicts (choices and Enter, rankings by tiers) and reviewing labels (a, x). */
import { announce, bindKey, showToast } from "../base/page.js";

const form = document.getElementById("decide"); // null where there is nothing to decide
const comment = form?.elements.comment;
const back = form?.querySelector("[data-return]");
const field = form?.querySelector("[data-tiers-field]");
const inputs = [...document.querySelectorAll("input[data-tier]")];
let sent = false;

function bindComment() {
  comment.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { comment.blur(); event.preventDefault(); }
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(back); }
  });
  bindKey("c", "Write a comment", () => comment.focus());
}

/* Sending back needs a comment: x asks for it first, and sends once it is there. */
function bindReturn() {
  bindKey("x", "Send back, with a comment", () => {
    if (comment.value.trim()) form.requestSubmit(back);
    else { comment.focus(); showToast("Write what the labeller should look at, then press Ctrl+Enter.", "info", 5); }
  });
}

function bindChoices() {
  for (const mark of form.querySelectorAll("[data-choice-key]")) {
    const label = mark.closest("label");
    const input = label.querySelector("input");
    const choose = () => { input.checked = true; input.dispatchEvent(new Event("change", { bubbles: true })); };
    const words = label.querySelector("span").textContent;
    bindKey(mark.dataset.choiceKey, words, choose);
    if (mark.dataset.choiceKey === "0") bindKey("=", words, choose);
    if (mark.dataset.choiceKey === "1" && input.value === "1") bindKey("ArrowLeft", words, choose);
    if (mark.dataset.choiceKey === "2" && input.value === "2") bindKey("ArrowRight", words, choose);
  }
  form.addEventListener("change", (event) => { if (event.target.name === "choice") announce(event.target.closest("label").querySelector("span").textContent); });
}

function bindDecision() {
  const isChosen = () => (field ? field.value : [...form.elements].some((one) => one.name === "choice" && one.checked));
  bindKey("Enter", "Decide, and go to the next", () => {
    if (sent) return;
    if (isChosen()) form.requestSubmit();
    else showToast(field ? "Give every answer a tier first." : "Choose an answer first.", "warning", 3);
  });
  form.addEventListener("submit", () => { sent = true; });
}

/* Tiers as they are written: places with equal numbers tie, the lowest number is best. */
function readTiers() {
  const said = form.querySelector("[data-tiers-said]");
  const numbers = inputs.map((input) => Number(input.value));
  const missing = inputs.filter((input, place) => !Number.isInteger(numbers[place]) || numbers[place] < 1);
  if (missing.length) { field.value = ""; said.textContent = `${missing.length} of ${inputs.length} answers have no tier yet; 1 is best, equal tiers are ties.`; return; }
  const levels = [...new Set(numbers)].sort((a, b) => a - b);
  const tiers = levels.map((level) => numbers.flatMap((number, place) => (number === level ? [place] : [])));
  field.value = JSON.stringify(tiers);
  const name = (place) => String.fromCharCode(65 + place);
  const pairs = tiers.reduce((sum, tier, at) => sum + tier.length * tiers.slice(at + 1).reduce((rest, lower) => rest + lower.length, 0), 0);
  said.textContent = `${tiers.map((tier) => tier.map(name).join(" = ")).join(" > ")}: ${pairs} pair${pairs === 1 ? "" : "s"}`;
}

function writeTiers(tiers) { tiers.forEach((tier, level) => { for (const place of tier) inputs[place].value = level + 1; }); readTiers(); }

function bindTiers() {
  for (const input of inputs) input.addEventListener("input", readTiers);
  for (const button of document.querySelectorAll("[data-take]")) {
    button.addEventListener("click", () => {
      const list = document.querySelector(`[data-tiers="${button.dataset.take}"]`);
      writeTiers([...list.children].map((tier) => tier.textContent.trim().split(/\s+/).map(Number)));
    });
  }
  try { if (field.value) writeTiers(JSON.parse(field.value)); else readTiers(); } catch { readTiers(); }
}

if (form) {
  bindComment();
  if (back) bindReturn();
  else {
    bindChoices();
    bindDecision();
    if (field) bindTiers();
  }
}
