/* Marking runs in the list to compare them: the marks outlive paging, filters and live updates of the rows. */
import { bindKey } from "../base/page.js";

const form = document.getElementById("compare-form");
const MOST = 20;
const chosen = new Set(); // run numbers, as text
const note = form.querySelector("[data-compare-note]");
const button = form.querySelector("[data-compare]");
const clear = form.querySelector("button[type=reset]");
export function listMarkedRuns() { return [...chosen]; }
const listBoxes = () => [...document.querySelectorAll("#run-table input[name=run]")];

function showMarks() {
  for (const box of listBoxes()) box.checked = chosen.has(box.value);
  const count = chosen.size;
  form.classList.toggle("has-marks", count > 0);
  clear.hidden = !count;
  button.disabled = count < 2 || count > MOST;
  button.querySelector("span").textContent = count ? `Compare ${count} run${count === 1 ? "" : "s"}` : "Compare";
  note.textContent = count === 1 ? "Mark at least one more." : count > MOST ? `At most ${MOST} runs can be compared at once.` : "";
}

document.addEventListener("change", (event) => {
  if (!event.target.matches("#run-table input[name=run]")) return;
  if (event.target.checked) chosen.add(event.target.value);
  else chosen.delete(event.target.value);
  showMarks();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  location.assign(`${form.action}?${new URLSearchParams([...chosen].map((number) => ["run", number]))}`);
});
form.addEventListener("reset", () => { chosen.clear(); showMarks(); });
document.addEventListener("htmx:afterSwap", showMarks);
for (const box of listBoxes()) if (box.checked) chosen.add(box.value); // what a browser remembers when one comes back
showMarks();
bindKey("x", "Mark the run for comparison", () => {
  const row = document.activeElement && document.activeElement.closest("tr[data-run]");
  if (row) row.querySelector("input[name=run]").click();
});
