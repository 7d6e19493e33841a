/* The menu of a table's columns: what stands above another comes before it. Rows are moved by drag or by their buttons; the form sends them in
   their order. An address that leaves the columns open gets those that are shown, so that a copied link shows the same table. */
import { announce } from "./page.js";

const findRow = (element) => element.closest("[data-column]");
const nameRow = (row) => row.querySelector("bdi").textContent;
let dragged = null;

function listShownRows(list) { return [...list.children].filter((row) => !row.hidden); }

function sayPlace(row) {
  const shown = listShownRows(row.parentElement);
  announce(`${nameRow(row)}: ${shown.indexOf(row) + 1} of ${shown.length}`);
}

function moveRow(button) {
  const row = findRow(button);
  const shown = listShownRows(row.parentElement);
  const other = shown[shown.indexOf(row) + Number(button.dataset.move)];
  if (!other) return;
  if (button.dataset.move === "-1") other.before(row);
  else other.after(row);
  button.focus(); // an element that is moved loses it
  row.scrollIntoView({ block: "nearest" });
  sayPlace(row);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-column] [data-move]");
  if (button) moveRow(button);
  if (event.target.matches("[data-fixed]")) event.preventDefault(); // it leads to what the row is about
});

/* Only the grip drags, so that words can be selected and boxes ticked. */
document.addEventListener("pointerdown", (event) => {
  const row = event.target.closest(".column-grip") && findRow(event.target);
  if (row) row.draggable = true;
});
document.addEventListener("dragstart", (event) => {
  dragged = event.target.matches?.("[data-column]") ? event.target : null;
  dragged?.classList.add("dragged");
});
document.addEventListener("dragover", (event) => {
  const over = dragged && event.target.closest?.("[data-column]");
  if (!over || over.parentElement !== dragged.parentElement) return;
  event.preventDefault();
  const { top, height } = over.getBoundingClientRect();
  if (over === dragged) return;
  if (event.clientY < top + height / 2) over.before(dragged);
  else over.after(dragged);
});
document.addEventListener("drop", (event) => { if (dragged && event.target.closest?.("[data-column]")) event.preventDefault(); });
document.addEventListener("dragend", () => {
  if (!dragged) return;
  dragged.classList.remove("dragged");
  dragged.draggable = false;
  sayPlace(dragged);
  dragged = null;
});

document.addEventListener("input", (event) => {
  if (!event.target.matches("[data-find-column]")) return;
  const words = event.target.value.toLowerCase().split(/\s+/);
  for (const row of event.target.form.querySelectorAll("[data-column]")) row.hidden = !words.every((word) => nameRow(row).toLowerCase().includes(word));
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("[data-find-column]")) event.preventDefault(); // it finds, and sends nothing
});

function showInAddress() {
  const shown = document.querySelector("[data-columns-shown]")?.dataset.columnsShown;
  const query = new URLSearchParams(location.search);
  if (!shown || query.has("cols")) return;
  query.set("cols", shown);
  history.replaceState(history.state, "", `${location.pathname}?${query}${location.hash}`);
}
showInAddress();
document.addEventListener("htmx:afterSettle", showInAddress);
