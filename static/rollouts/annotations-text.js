/* Annotations in the text of a rollout: commented ranges underlined, steps marked in the margin, the current step, links to a comment, keys. */
import { announce, bindKey, showToast } from "../base/page.js";
import { startComment, findPanel, root, sendChange, describeFailure, isWritable } from "./annotations.js";
import { rememberUndo, undoLast, buildMarkUndo } from "./annotations-undo.js";
import { completion } from "./trajectory-text.js";

const VERDICTS = ["good", "bad", "neutral"];
let current = null; // index of the step that keys mark; null = the first one unmarked
let asked = new URLSearchParams(location.search).get("comment"); // until it was shown

const findText = () => (completion.data ? completion : null);
const readRange = (element) => [Number(element.dataset.start), Number(element.dataset.end)];
const readSteps = () => (findPanel().dataset.steps ? findPanel().dataset.steps.split(",").map((one) => one.split("-").map(Number)) : []);
const takeFirstTokens = (ranges) => ranges.map(([start]) => [start, start + 1]);

function paintMarks() {
  if (!findPanel()) return;
  const text = findText();
  const [open, resolved] = [[], []];
  for (const thread of root.querySelectorAll(".thread[data-start]")) ("resolved" in thread.dataset ? resolved : open).push(readRange(thread));
  if (text) {
    text.replaceMarks("commented", open);
    text.replaceMarks("commented-done", resolved);
    for (const verdict of VERDICTS) {
      const marked = [...root.querySelectorAll(`[data-marked="${verdict}"]`)].map(readRange);
      text.replaceMarks(`step-${verdict}`, marked);
      text.replaceMarks(`step-${verdict}-first`, takeFirstTokens(marked));
    }
    document.getElementById("text")?.classList.toggle("with-steps", Boolean(findPanel().dataset.steps)); // room for marks to come, so that none moves the text
  }
  showCurrentStep();
}

// ---- steps

function findCurrentStep() {
  const all = readSteps();
  if (current !== null && current < all.length) return current;
  const mine = new Set([...root.querySelectorAll("[data-marked][data-mine]")].map((one) => Number(one.dataset.start)));
  const unmarked = all.findIndex(([start]) => !mine.has(start));
  return unmarked < 0 ? all.length - 1 : unmarked;
}

/* Shows which step the keys mark: in the list and in the margin. */
function showCurrentStep() {
  const all = readSteps();
  const now = isWritable() && all.length ? all[findCurrentStep()] : null;
  for (const item of root.querySelectorAll(".step-marks li")) {
    const here = now && Number(item.dataset.start) === now[0];
    if (here) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  }
  findText()?.replaceMarks("step-now", now && current !== null ? takeFirstTokens([now]) : []);
}

function goToStep(index, { scroll = true } = {}) {
  const all = readSteps();
  if (!all[index]) return;
  current = index;
  paintMarks();
  const item = root.querySelector(`.step-marks li[data-start="${all[index][0]}"]`);
  const list = item && item.parentElement;
  if (list) list.scrollTop = Math.max(0, item.offsetTop - list.clientHeight / 3);
  if (scroll) findText()?.scrollTo(all[index][0]);
}

async function markStep(verdict) {
  if (!isWritable()) return;
  const all = readSteps();
  if (!all.length) { showToast("This completion has no steps to mark.", "info", 3); return; }
  const index = findCurrentStep();
  const start = all[index][0];
  const step = buildMarkUndo(String(start), verdict);
  const answer = await sendChange(findPanel().dataset.markUrl, { start, mark: verdict });
  if (answer.status !== 200) { showToast(describeFailure(answer), "error"); return; }
  rememberUndo(step, answer.body);
  if (index + 1 < all.length) goToStep(index + 1);
  else { current = null; paintMarks(); announce(`Step marked ${verdict}. That was the last step.`); }
}

/* The step of a token becomes the current one, without moving anything. */
function followToken(position) {
  const index = readSteps().findIndex(([start, end]) => position >= start && position < end);
  if (index >= 0 && index !== current) goToStep(index, { scroll: false });
}

const text = document.getElementById("text");
const findPosition = (element) => { const unit = element?.closest?.("[data-first]"); return unit ? Number(unit.dataset.first) : null; };
text?.addEventListener("click", (event) => {
  const position = findPosition(event.target);
  if (position === null || !findPanel()) return;
  followToken(position);
  if (getSelection().isCollapsed) focusThreadAt(position);
});
text?.addEventListener("keyup", () => {
  const position = findPosition(text.querySelector(".unit.pinned"));
  if (position !== null && findPanel()) followToken(position);
});

// ---- threads

function focusThreadAt(position) {
  const all = [...root.querySelectorAll(".thread[data-start]")].filter((thread) => { const [start, end] = readRange(thread); return position >= start && position < end; });
  if (all.length) showThread(all[all.length - 1], { scrollText: false });
}

function showThread(thread, { scrollText = true } = {}) {
  for (const other of root.querySelectorAll(".thread.shown")) other.classList.remove("shown");
  thread.classList.add("shown");
  thread.scrollIntoView({ block: "nearest" });
  if (!thread.dataset.start || !findText()) return;
  findText().replaceMarks("comment-shown", [readRange(thread)]);
  if (scrollText) findText().scrollTo(Number(thread.dataset.start));
}

root.addEventListener("click", (event) => {
  const link = event.target.closest("[data-goto]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const item = link.closest("li[data-start]");
  if (item) { goToStep(readSteps().findIndex(([start]) => start === Number(item.dataset.start))); return; }
  if (!findText()) return; // without the text on this page the link leads to it
  event.preventDefault();
  const thread = link.closest(".thread");
  showThread(thread);
  const query = new URLSearchParams(location.search);
  query.set("comment", thread.dataset.comment);
  history.replaceState(history.state, "", `?${query}`);
});

/* Opens what ?comment= names, once panel and text are both there. */
function openLinkedComment() {
  if (!asked || !findPanel()) return;
  const found = document.getElementById(`comment-${/^\d+$/.test(asked) ? asked : ""}`);
  if (!found) { showToast("The comment of this link was deleted, or is about another rollout.", "warning"); asked = null; return; }
  const thread = found.closest(".thread");
  if (thread.dataset.start && text && !findText()) return; // its words come with the text
  asked = null;
  found.classList.add("linked");
  showThread(thread);
  found.scrollIntoView({ block: "nearest" });
}

document.addEventListener("annotations:anchored", ({ detail }) => findText()?.replaceMarks("comment-draft", detail ? [[Number(detail.start), Number(detail.end)]] : []));
document.addEventListener("annotations:shown", () => { paintMarks(); openLinkedComment(); });
document.addEventListener("tokens:ready", () => { paintMarks(); openLinkedComment(); });

bindKey("c", "Comment on the selection, or on the rollout", startComment);
bindKey("m g", "Mark the current step good", () => markStep("good"));
bindKey("m b", "Mark the current step bad", () => markStep("bad"));
bindKey("m x", "Mark the current step neutral", () => markStep("neutral"));
bindKey("u", "Undo your last annotation here", undoLast);
