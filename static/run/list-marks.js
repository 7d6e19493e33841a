/* Marking runs in the list, to compare them or to do something with all of them: the marks outlive paging, filters and live updates of the rows. */
import { bindKey } from "../base/page.js";

const form = document.getElementById("compare-form");
const MOST = 20;
const chosen = new Set(); // run numbers, as text
const count = form.querySelector("[data-marked-count]");
const button = form.querySelector("[data-compare]");
let last = null; // the box that was clicked before: where a range with Shift begins
export function listMarkedRuns() { return [...chosen]; }
export function clearMarks() { chosen.clear(); showMarks(); }
const listBoxes = () => [...document.querySelectorAll("#run-table input[name=run]")];
/* A group's box stands for its runs, whether they are listed or not. */
const listGroups = () => [...document.querySelectorAll("[data-group-runs]:enabled")].map((box) => ({ box, runs: box.dataset.groupRuns.split(",") }));

function showMarks() {
  const boxes = listBoxes();
  const groups = listGroups();
  for (const box of boxes) box.checked = chosen.has(box.value);
  for (const { box, runs } of groups) showBox(box, runs);
  const here = groups.length ? groups.flatMap(({ runs }) => runs) : boxes.map((box) => box.value);
  const all = document.querySelector("[data-mark-page]");
  if (all) showBox(all, here);
  form.classList.toggle("has-marks", chosen.size > 0);
  document.documentElement.style.setProperty("--bar-height", `${form.offsetHeight}px`);
  form.querySelector("[data-mark-all]").hidden = here.every((number) => chosen.has(number));
  const { archive } = document.getElementById("run-table").dataset; // "" without archived runs, "1" with no others
  for (const one of form.querySelectorAll("[data-act-archive]")) one.hidden = archive === "1";
  for (const one of form.querySelectorAll("[data-act-unarchive]")) one.hidden = !archive;
  count.textContent = `${chosen.size} selected`;
  button.setAttribute("aria-label", `Compare ${chosen.size} run${chosen.size === 1 ? "" : "s"}`);
  button.disabled = chosen.size < 2 || chosen.size > MOST;
  button.title = chosen.size > MOST ? `At most ${MOST} runs can be compared` : chosen.size < 2 ? "Select at least two runs" : "";
}

/* Ticked with all of its runs, half with some. */
function showBox(box, runs) {
  const marked = runs.filter((number) => chosen.has(number)).length;
  Object.assign(box, { checked: marked > 0 && marked === runs.length, indeterminate: marked > 0 && marked < runs.length });
}

function markRuns(runs, on) {
  for (const number of runs) if (on) chosen.add(number); else chosen.delete(number);
  showMarks();
}

function markPage(on) { markRuns([...listBoxes().map((box) => box.value), ...listGroups().flatMap(({ runs }) => runs)], on); }

document.addEventListener("change", ({ target }) => {
  if (target.matches("[data-mark-page]")) markPage(target.checked);
  if (target.matches("[data-group-runs]")) markRuns(target.dataset.groupRuns.split(","), target.checked);
  if (!target.matches("#run-table input[name=run]")) return;
  if (target.checked) chosen.add(target.value);
  else chosen.delete(target.value);
  showMarks();
});
/* With Shift: everything from the box before to this one, as this one is now. The click comes before the change. */
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-mark-all]")) markPage(true);
  const box = event.target.closest("#run-table input[name=run]");
  if (!box) return;
  const boxes = listBoxes();
  const [from, to] = [boxes.findIndex((one) => one.value === last), boxes.indexOf(box)].sort((one, other) => one - other);
  if (event.shiftKey && from >= 0) for (const one of boxes.slice(from, to + 1)) if (box.checked) chosen.add(one.value); else chosen.delete(one.value);
  last = box.value;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.defaultPrevented || !chosen.size || document.querySelector("dialog[open], details[data-menu][open]")) return;
  if (event.target.closest(".filters, .toasts")) return; // there it empties the search, or does nothing
  clearMarks();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const goal = event.submitter?.hasAttribute("formaction") ? event.submitter.formAction : form.action; // deleting, or comparing
  location.assign(`${goal}?${new URLSearchParams([...chosen].map((number) => ["run", number]))}`);
});
form.addEventListener("reset", clearMarks);
document.addEventListener("htmx:afterSwap", showMarks);
for (const box of listBoxes()) if (box.checked) chosen.add(box.value); // what a browser remembers when one comes back
showMarks();
bindKey("x", "Select the run", () => {
  const row = document.activeElement && document.activeElement.closest("tr[data-run]");
  if (row) row.querySelector("input[name=run]").click();
});
