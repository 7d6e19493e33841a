/* Annotations in the text of a rollout: commented ranges underlined, steps marked in the margin, the current step, links to a comment, keys. */
import { announce, bindKey, showToast } from "../base/page.js";
import { comment, panel, root, send, wordsOf, writable } from "./annotations.js";
import { done, undo, undoMark } from "./annotations-undo.js";
import { completion } from "./trajectory-text.js";

const VERDICTS = ["good", "bad", "neutral"];
let current = null; // index of the step that keys mark; null = the first one unmarked
let asked = new URLSearchParams(location.search).get("comment"); // until it was shown

const tokens = () => (completion.data ? completion : null);
const range = (element) => [Number(element.dataset.start), Number(element.dataset.end)];
const steps = () => (panel().dataset.steps ? panel().dataset.steps.split(",").map((one) => one.split("-").map(Number)) : []);
const firsts = (ranges) => ranges.map(([start]) => [start, start + 1]);

function paint() {
  if (!panel()) return;
  const text = tokens();
  const [open, resolved] = [[], []];
  for (const thread of root.querySelectorAll(".thread[data-start]")) ("resolved" in thread.dataset ? resolved : open).push(range(thread));
  if (text) {
    text.replaceMarks("commented", open);
    text.replaceMarks("commented-done", resolved);
    for (const verdict of VERDICTS) {
      const marked = [...root.querySelectorAll(`[data-marked="${verdict}"]`)].map(range);
      text.replaceMarks(`step-${verdict}`, marked);
      text.replaceMarks(`step-${verdict}-first`, firsts(marked));
    }
    document.getElementById("text")?.classList.toggle("with-steps", Boolean(panel().dataset.steps)); // room for marks to come, so that none moves the text
  }
  point();
}

// ---- steps

function at() {
  const all = steps();
  if (current !== null && current < all.length) return current;
  const mine = new Set([...root.querySelectorAll("[data-marked][data-mine]")].map((one) => Number(one.dataset.start)));
  const unmarked = all.findIndex(([start]) => !mine.has(start));
  return unmarked < 0 ? all.length - 1 : unmarked;
}

/* Shows which step the keys mark: in the list and in the margin. */
function point() {
  const all = steps();
  const now = writable() && all.length ? all[at()] : null;
  for (const item of root.querySelectorAll(".step-marks li")) {
    const here = now && Number(item.dataset.start) === now[0];
    if (here) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  }
  tokens()?.replaceMarks("step-now", now && current !== null ? firsts([now]) : []);
}

function go(index, { scroll = true } = {}) {
  const all = steps();
  if (!all[index]) return;
  current = index;
  paint();
  const item = root.querySelector(`.step-marks li[data-start="${all[index][0]}"]`);
  const list = item && item.parentElement;
  if (list) list.scrollTop = Math.max(0, item.offsetTop - list.clientHeight / 3);
  if (scroll) tokens()?.scrollTo(all[index][0]);
}

async function mark(verdict) {
  if (!writable()) return;
  const all = steps();
  if (!all.length) { showToast("This completion has no steps to mark.", "info", 3); return; }
  const index = at();
  const start = all[index][0];
  const step = undoMark(String(start), verdict);
  const answer = await send(panel().dataset.markUrl, { start, mark: verdict });
  if (answer.status !== 200) { showToast(wordsOf(answer), "error"); return; }
  done(step, answer.body);
  if (index + 1 < all.length) go(index + 1);
  else { current = null; paint(); announce(`Step marked ${verdict}. That was the last step.`); }
}

/* The step of a token becomes the current one, without moving anything. */
function follow(position) {
  const index = steps().findIndex(([start, end]) => position >= start && position < end);
  if (index >= 0 && index !== current) go(index, { scroll: false });
}

const text = document.getElementById("text");
const positionOf = (element) => { const unit = element?.closest?.("[data-first]"); return unit ? Number(unit.dataset.first) : null; };
text?.addEventListener("click", (event) => {
  const position = positionOf(event.target);
  if (position === null || !panel()) return;
  follow(position);
  if (getSelection().isCollapsed) focusThreadAt(position);
});
text?.addEventListener("keyup", () => {
  const position = positionOf(text.querySelector(".unit.pinned"));
  if (position !== null && panel()) follow(position);
});

// ---- threads

function focusThreadAt(position) {
  const all = [...root.querySelectorAll(".thread[data-start]")].filter((thread) => { const [start, end] = range(thread); return position >= start && position < end; });
  if (all.length) showThread(all[all.length - 1], { scrollText: false });
}

function showThread(thread, { scrollText = true } = {}) {
  for (const other of root.querySelectorAll(".thread.shown")) other.classList.remove("shown");
  thread.classList.add("shown");
  thread.scrollIntoView({ block: "nearest" });
  if (!thread.dataset.start || !tokens()) return;
  tokens().replaceMarks("comment-shown", [range(thread)]);
  if (scrollText) tokens().scrollTo(Number(thread.dataset.start));
}

root.addEventListener("click", (event) => {
  const link = event.target.closest("[data-goto]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const item = link.closest("li[data-start]");
  if (item) { go(steps().findIndex(([start]) => start === Number(item.dataset.start))); return; }
  if (!tokens()) return; // without the text on this page the link leads to it
  event.preventDefault();
  const thread = link.closest(".thread");
  showThread(thread);
  const query = new URLSearchParams(location.search);
  query.set("comment", thread.dataset.comment);
  history.replaceState(history.state, "", `?${query}`);
});

/* Opens what ?comment= names, once panel and text are both there. */
function linked() {
  if (!asked || !panel()) return;
  const found = document.getElementById(`comment-${/^\d+$/.test(asked) ? asked : ""}`);
  if (!found) { showToast("The comment of this link was deleted, or is about another rollout.", "warning"); asked = null; return; }
  const thread = found.closest(".thread");
  if (thread.dataset.start && text && !tokens()) return; // its words come with the text
  asked = null;
  found.classList.add("linked");
  showThread(thread);
  found.scrollIntoView({ block: "nearest" });
}

document.addEventListener("annotations:anchored", ({ detail }) => tokens()?.replaceMarks("comment-draft", detail ? [[Number(detail.start), Number(detail.end)]] : []));
document.addEventListener("annotations:shown", () => { paint(); linked(); });
document.addEventListener("tokens:ready", () => { paint(); linked(); });

bindKey("c", "Comment on the selection, or on the rollout", comment);
bindKey("m g", "Mark the current step good", () => mark("good"));
bindKey("m b", "Mark the current step bad", () => mark("bad"));
bindKey("m x", "Mark the current step neutral", () => mark("neutral"));
bindKey("u", "Undo your last annotation here", undo);
