/* Stop, archive and tag the marked runs of the list. The server says how many it changed, why it left others alone, and what undoes it. */
import { showToast } from "../base/page.js";
import { showPart } from "../base/parts.js";
import { clearMarks, listMarkedRuns } from "./list-marks.js";

const form = document.getElementById("act-form");
const tag = document.getElementById("act-tag");
const LEAVES = ["archive", "unarchive"]; // the runs leave the list, and with it the selection

async function actOnRuns(act, runs, word) {
  const body = new FormData(form);
  body.set("act", act);
  body.set("tag", word);
  for (const number of runs) body.append("run", number);
  let answer;
  try {
    const response = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" }, credentials: "same-origin" });
    answer = response.headers.get("Content-Type")?.startsWith("application/json") ? await response.json()
      : { text: response.status === 404 ? "None of these runs is there any more." : `The server answered ${response.status}. Reload the page.`, tone: "error" };
  } catch {
    answer = { text: "The server is unreachable. Check that it is running and try again.", tone: "error" };
  }
  showOutcome(answer);
  if (answer.tone === "error") return false;
  await showPart("run-table", document.getElementById("run-table").dataset.rowsUrl);
  return true;
}

function showOutcome({ text, tone, undo }) {
  for (const old of document.querySelectorAll(".toast.undoable")) old.remove(); // one act can be taken back, the last
  const item = showToast(text, tone, tone === "error" ? 0 : 12);
  if (!undo) return;
  item.classList.add("undoable");
  const button = Object.assign(document.createElement("button"), { className: "button small", type: "button", textContent: "Undo" });
  button.addEventListener("click", () => { item.remove(); actOnRuns(undo.act, undo.runs, undo.tag); });
  item.insertBefore(button, item.lastElementChild);
}

form.addEventListener("submit", async (event) => {
  if (event.defaultPrevented) return; // the question whether to stop stands
  event.preventDefault();
  const act = event.submitter ? event.submitter.value : "tag"; // Enter in the field of the tag
  if (act === "tag" && !tag.value.trim()) { tag.focus(); return; }
  if (await actOnRuns(act, listMarkedRuns(), tag.value)) {
    if (act === "tag") tag.value = "";
    if (LEAVES.includes(act)) clearMarks();
  }
});
tag.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault(); // the first button of the form would be Stop
  form.requestSubmit(document.querySelector("[form=act-form][value=tag]"));
});
