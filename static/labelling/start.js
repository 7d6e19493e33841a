/* Starts the labelling page: its own keys, signs of the person, and the first items. */
import "./advance.js";
import "./skip.js";
import { bindKey, showToast } from "../base/page.js";
import { frame } from "./frame.js";
import { useKeys } from "./keys.js";
import { notices, say } from "./notices.js";
import { page } from "./page.js";
import { answerPanels } from "./panels.js";
import { listQuestionKeys } from "./rubric.js";
import { store } from "./store.js";

const root = document.getElementById("labelling");
const guidelines = root.querySelector("[data-guidelines]");
const FIELD = "textarea, select, input:not([type=radio]):not([type=checkbox])";

function toggleGuidelines() {
  if (!guidelines) { say("This queue has no guidelines."); return; }
  guidelines.open = !guidelines.open;
  if (guidelines.open) guidelines.scrollIntoView({ block: "nearest" });
}

useKeys([
  { id: "submit", key: "Enter", label: "Submit and next", run: frame.submit },
  { id: "skip", key: "s", label: "Skip, with a reason", run: () => frame.skip() },
  { id: "undo", key: "u", label: "Undo the last answer", run: frame.undo },
  { id: "guidelines", key: "i", label: "Guidelines", run: toggleGuidelines },
  ...answerPanels.keys(),
]);

// These two work while writing, too, so they are taken below; here they are for the list of keys.
bindKey("Ctrl+S", "Save the draft", () => {});
bindKey("Ctrl+Enter", "Submit from a text field (Esc leaves it)", () => {});
listQuestionKeys();

/* Enter on a link or a button that is not a choice presses it, as everywhere. */
document.addEventListener("keydown", (event) => {
  frame.touch();
  if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && event.target.closest?.("a, summary, button:not([data-choice])")) event.stopImmediatePropagation();
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "s") { event.preventDefault(); frame.save(); }
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.closest?.("#labelling textarea") && !event.isComposing) { event.preventDefault(); frame.submit(); }
  if (event.key === "Escape" && event.target.matches?.(FIELD) && !event.target.closest("dialog")) { event.preventDefault(); notices.find("stage").focus({ preventScroll: true }); }
}, true);
for (const sign of ["pointerdown", "wheel", "touchstart"]) document.addEventListener(sign, frame.touch, { passive: true });

root.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) ({ submit: frame.submit, skip: frame.skip, undo: frame.undo, save: frame.save, look: () => { notices.state("loading"); frame.fill(); } })[button.dataset.do]?.();
});

document.addEventListener("visibilitychange", () => {
  const entry = frame.current();
  if (!document.hidden && store.outbox().length) store.flush();
  if (entry && document.hidden) { frame.watched(entry); return; }
  if (entry) { entry.shown = performance.now() / 1000; frame.touch(); frame.renew(); }
});

if (guidelines) {
  guidelines.open = store.kept("guidelines", true);
  guidelines.addEventListener("toggle", () => store.keep("guidelines", guidelines.open));
}

/* One's own answer to an item, to be looked at again. */
async function reviseAnswer(item) {
  const { status, body } = await store.ask(page.urls.mine, { item });
  if (status !== 200) { showToast(status === 404 ? "There is no answer of yours to this item that could be changed." : body.message || "Your answer could not be fetched. Reload the page.", "warning"); return; }
  const token = `judgement-${body.judgement}`;
  const comment = page.returned[item] || body.comment || "";
  const entry = frame.prepare({ ...body.claim, token, judgement: body.judgement, comment });
  frame.held.unshift(entry);
  frame.show(entry);
}

async function startPage() {
  answerPanels.mark();
  if (store.outbox().length) await store.flush();
  if (page.revise !== null) await reviseAnswer(page.revise);
  frame.fill();
}

document.addEventListener("DOMContentLoaded", startPage);
window.addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); }); // what it held was given back
