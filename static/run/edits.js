/* Editing a running run: the dialog with its form, and the lists of edits, fetched anew when somebody asks for an edit or the trainer reports one. */
import { showPart } from "../base/parts.js";
import { liveRun } from "./live.js";

const root = document.getElementById("run");
const dialog = document.getElementById("edit-dialog");
const address = root.dataset.edits;
const parts = { "edits-pending": "pending", "edits-list": "list" };

function refreshEdits() {
  for (const [id, part] of Object.entries(parts)) if (document.getElementById(id)) showPart(id, `${address}?part=${part}`);
}

async function openDialog(link) {
  const waiting = Object.assign(document.createElement("p"), { id: "edit-run-form", className: "muted", textContent: "Loading the current values…" });
  dialog.querySelector("[data-body]").replaceChildren(waiting);
  for (const menu of document.querySelectorAll("details[data-menu][open]")) menu.open = false;
  dialog.showModal();
  if (!await showPart("edit-run-form", link.href)) dialog.close(); // the person has been told
  else dialog.querySelector("input:not([type=hidden])")?.focus();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-dialog=edit-dialog]");
  if (link && dialog && !event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); openDialog(link); return; }
  if (dialog?.open && event.target.closest("[data-dialog-close]")) { event.preventDefault(); dialog.close(); }
});
/* A form that came back: the first input to mend has the focus. */
document.addEventListener("htmx:afterSettle", (event) => {
  if (dialog?.open && event.target.closest("#edit-run-form")) dialog.querySelector("[aria-invalid=true]")?.focus();
});
document.addEventListener("lab:edited", () => {
  if (dialog?.open) dialog.close();
  refreshEdits();
});

let told = null;
liveRun.on("edits", refreshEdits);
liveRun.on("state", (state) => {
  if (told !== null && told !== state.edits) refreshEdits();
  told = state.edits;
});
