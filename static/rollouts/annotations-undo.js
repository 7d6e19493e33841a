/* Takes annotations back: every change remembers what undoes it, for this page and as long as the tab lives; u takes back the last one. */
import { findPanel, root, nameScope, sendChange, accessStorage, describeFailure, isWritable } from "./annotations.js";
import { announce, showToast } from "../base/page.js";

const MOST = 50;
const opposite = { delete: "restore", resolve: "reopen", reopen: "resolve" };
const words = { delete: "Comment deleted", resolve: "Thread resolved", reopen: "Thread reopened", untag: "Tag removed", tag: "Tagged", rate: "Rated", turn: "Turn labelled" };

const nameStack = () => `undo-${nameScope()}`;
const readStack = () => accessStorage("sessionStorage", nameStack()) || [];
const keepStack = (steps) => accessStorage("sessionStorage", nameStack(), steps.slice(-MOST));

/* What would take back the change a form is about to make; {made} in the address is the id the server gives. Asked before sending. */
export function buildUndo(form, data) {
  const what = form.dataset.annotate;
  const said = { what, label: words[what] || "Annotated" };
  if (what === "tag") return { ...said, url: `${findPanel().dataset.tagUrl}{made}/remove/`, data: {}, label: `Tagged “${data.name.trim()}”` };
  if (what === "untag") return { ...said, url: findPanel().dataset.tagUrl, data: { name: form.dataset.name }, label: `Tag “${form.dataset.name}” removed` };
  if (what === "rate") return { ...said, url: form.action, data: { value: root.querySelector("[data-part=rating]").dataset.mine || "0" }, label: data.value === "0" ? "Rating taken back" : `Rated ${data.value}` };
  if (what === "mark") return buildMarkUndo(data.start, data.mark);
  if (what === "comment" || what === "answer") return { ...said, url: `${findPanel().dataset.commentsUrl}{made}/delete/`, data: {}, label: "Comment sent" };
  if (what === "edit") return { ...said, url: form.action, data: { text: form.elements.text.defaultValue }, edits: form.closest("[data-comment-id]").id, label: "Comment changed" };
  return { ...said, url: form.action.replace(/[a-z]+\/$/, `${opposite[what]}/`), data: {} };
}

export function buildMarkUndo(start, verdict) {
  const before = root.querySelector(`[data-marked][data-start="${start}"]`)?.dataset.mine || "";
  return { what: "mark", url: findPanel().dataset.markUrl, data: { start, mark: before }, label: verdict ? `Step marked ${verdict}` : "Mark taken back" };
}

/* Remembers a change that arrived, and offers to take it back where it is easily done by mistake. */
export function rememberUndo(step, answer) {
  if (!answer.fresh && !["rate", "mark"].includes(step.what)) return;
  keepStack([...readStack(), { ...step, url: step.url.replace("{made}", answer.made) }]);
  announce(step.label);
  if (step.what in words) showUndoToast(step.label);
}

function showUndoToast(text) {
  for (const old of document.querySelectorAll(".toast.undoable")) old.remove(); // u takes back the last one only
  showToast(text, "info", 8);
  const item = document.querySelector("[data-toasts]").lastElementChild;
  item.classList.add("undoable");
  const button = Object.assign(document.createElement("button"), { className: "button small", type: "button", textContent: "Undo " });
  button.append(Object.assign(document.createElement("kbd"), { className: "kbd", textContent: "u" }));
  button.addEventListener("click", () => { item.remove(); undoLast(); });
  item.insertBefore(button, item.lastElementChild);
}

export async function undoLast() {
  if (!isWritable()) return;
  const steps = readStack();
  const step = steps.pop();
  if (!step) { showToast("Nothing of yours to undo on this page.", "info", 3); return; }
  for (const old of document.querySelectorAll(".toast.undoable")) old.remove();
  const data = { ...step.data };
  if (step.edits) data.seen = document.querySelector(`#${CSS.escape(step.edits)} [name=seen]`)?.value || "";
  const answer = await sendChange(step.url, data);
  if (answer.status === 0) { showToast(describeFailure(answer), "error"); return; }
  keepStack(steps);
  if (answer.status === 200) document.dispatchEvent(new CustomEvent("annotations:undone", { detail: answer.body }));
  showToast(answer.status === 200 ? `Undone: ${step.label}` : describeFailure(answer), answer.status === 200 ? "success" : "error", 4);
}
