/* The queue stays current, is reordered by dragging or by its buttons, and says what was done. */
import { showToast } from "../base/page.js";
import { showPart } from "../base/parts.js";
import { LabSocket } from "../base/socket.js";

const REFRESH_MS = 5000;
const SOON_MS = 800;
const CHOOSING_MS = 15000; // a list that somebody has just opened is left alone for so long

let dragged = null; // the chain that is dragged: the number of its first run
let chosenAt = 0; // when a select was last touched
let timer = 0;

const findPart = () => document.getElementById("queue");
const findChain = (head) => [...findPart().querySelectorAll(`tr[data-chain="${CSS.escape(head)}"]`)];
const isChoosing = () => document.activeElement?.matches("#queue select") && Date.now() - chosenAt < CHOOSING_MS;

function refreshLater(wait) {
  clearTimeout(timer);
  timer = setTimeout(refreshQueue, wait);
}

async function refreshQueue() {
  if (!document.hidden && dragged === null && !isChoosing()) await showPart("queue", findPart().dataset.url);
  refreshLater(REFRESH_MS);
}

function sendChange(values) {
  htmx.ajax("POST", findPart().dataset.change, { source: findPart(), target: "#queue", swap: "outerHTML", values });
}

document.addEventListener("lab:said", (event) => showToast(event.detail.text, event.detail.tone));

// A button of a run that is at the end already stays in the order of the keys, and does nothing.
document.addEventListener("click", (event) => { if (event.target.closest("#queue [aria-disabled=true]")) event.preventDefault(); }, true);

for (const name of ["focusin", "pointerdown", "keydown"]) {
  document.addEventListener(name, (event) => { if (event.target.matches?.("#queue select")) chosenAt = Date.now(); });
}
document.addEventListener("change", (event) => {
  const select = event.target.closest("#queue select[data-set]");
  if (!select) return;
  chosenAt = 0;
  sendChange({ run: select.form.elements.run.value, act: select.dataset.set, [select.dataset.set]: select.value });
});

/* Where the dragged chain would go: in front of a chain, or at the end of its table. */
function findDrop(event) {
  const row = event.target.closest?.("tbody[data-order] tr");
  if (!row || dragged === null || row.parentElement !== findChain(dragged)[0]?.parentElement) return null;
  const chain = findChain(row.dataset.chain);
  const first = chain[0].getBoundingClientRect().top;
  const middle = (first + chain.at(-1).getBoundingClientRect().bottom) / 2;
  if (event.clientY < middle) return { row: chain[0], edge: "drop-before", before: row.dataset.chain };
  const next = chain.at(-1).nextElementSibling;
  return { row: chain.at(-1), edge: "drop-after", before: next ? next.dataset.chain : null };
}

function clearDrop() {
  for (const row of findPart().querySelectorAll(".drop-before, .drop-after")) row.classList.remove("drop-before", "drop-after");
}

document.addEventListener("pointerdown", (event) => {
  const row = event.target.closest?.("#queue [data-grip]")?.closest("tr");
  if (row) row.draggable = true; // only by its grip: text in the row can still be selected
});
document.addEventListener("pointerup", () => { for (const row of document.querySelectorAll("#queue tr[draggable=true]")) row.draggable = false; });
document.addEventListener("dragstart", (event) => {
  const row = event.target.closest?.("#queue tr[draggable=true]");
  if (!row) return;
  dragged = row.dataset.chain;
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setData("text/plain", `#${dragged}`);
  for (const one of findChain(dragged)) one.classList.add("dragging");
});
document.addEventListener("dragover", (event) => {
  const drop = findDrop(event);
  clearDrop();
  if (!drop) return;
  event.preventDefault();
  drop.row.classList.add(drop.edge);
});
document.addEventListener("drop", (event) => {
  const drop = findDrop(event);
  if (!drop) return;
  event.preventDefault();
  if (drop.before !== dragged) sendChange(drop.before ? { run: dragged, act: "before", before: drop.before } : { run: dragged, act: "bottom" });
});
document.addEventListener("dragend", () => {
  clearDrop();
  for (const row of document.querySelectorAll("#queue .dragging")) { row.classList.remove("dragging"); row.draggable = false; }
  dragged = null;
});

const socket = new LabSocket(`/ws/teams/${document.body.dataset.team}/`, {
  onOpen() {},
  onMessage(message) { if (message.type === "state") refreshLater(SOON_MS); },
  onClose() {},
});
socket.connect();
refreshLater(REFRESH_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refreshLater(0); });
