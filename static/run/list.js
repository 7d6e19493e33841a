/* The runs list stays current: cells of rows change in place, rows never move, new runs are announced and shown on request.

   The socket says which runs changed. Once it listens, the rows are fetched and compared, so nothing that happened before is missed; curves and
   reasons, which a state does not carry, are fetched again a while after a change. */
import { bindListKeys } from "../base/list-keys.js";
import { formatCompact } from "../base/numbers.js";
import { announce } from "../base/page.js";
import { LabSocket } from "../base/socket.js";

const badge = document.querySelector("[data-live-badge]");
const findTable = () => document.getElementById("run-table");

const REFRESH_MS = 10000;
let newest = Number(findTable().dataset.newest);
const fresh = new Set();
let refreshing = 0; // the timer of the next refresh
let refreshAt = 0;
let meanwhile = null; // what the socket said of runs while their rows were being fetched: newer than the rows

function showBadge(state, words) {
  badge.hidden = false;
  if (badge.dataset.state === state && badge.textContent === words) return;
  badge.dataset.state = state;
  badge.textContent = words;
}

function writeCell(cell, text) {
  if (cell && cell.textContent !== text) cell.textContent = text;
}

/* As lab/lib/numbers.py writes numbers. */
function formatNumber(value) {
  if (value === "nan") return "NaN";
  if (value === "inf") return "∞";
  if (value === "-inf") return "−∞";
  if (typeof value !== "number") return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1000) return String(value);
  if (Math.abs(value) >= 1000) return formatCompact(value);
  if (Math.abs(value) < 0.001) return value.toExponential(1).replace(/e([+-])(\d)$/, "e$10$2");
  return value.toFixed(Math.min(3, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))))));
}

function formatDuration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) {
    const rest = Math.round(seconds) % 60;
    return seconds < 300 && rest ? `${Math.floor(seconds / 60)} min ${rest} s` : `${Math.floor(seconds / 60)} min`;
  }
  const minutes = Math.floor((seconds % 3600) / 60);
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h${minutes ? ` ${minutes} min` : ""}` : `${Math.floor(seconds / 86400)} d`;
}

const describePhase = (run) => (run.phase_total ? `${run.phase} ${run.phase_done}/${run.phase_total}` : run.phase);

/* A row has the cells of the columns that somebody chose. */
function applyState(run) {
  meanwhile?.set(run.id, run);
  const row = document.querySelector(`tr[data-run="${CSS.escape(run.id)}"]`);
  if (!row) {
    if (run.number > newest) showNewRuns([run.number]);
    return;
  }
  const chip = row.querySelector(".chip");
  if (chip && chip.dataset.status !== run.status) {
    chip.dataset.status = run.status;
    writeCell(chip, run.status);
    announce(`Run ${run.number} is ${run.status}`);
    writeCell(row.querySelector('[data-cell="why"]'), ["failed", "stopped", "queued"].includes(run.status) ? run.reason : "");
    if (["queued", "lost", "finished"].includes(run.status)) refreshLater(800);
  }
  const bar = row.querySelector("progress");
  if (bar) {
    bar.value = run.progress ?? 0;
    bar.dataset.status = run.status;
  }
  writeCell(row.querySelector('[data-cell="steps"]'), run.total_steps ? `${run.step}/${run.total_steps}` : String(run.step));
  const active = ["starting", "running", "stopping"].includes(run.status);
  writeCell(row.querySelector('[data-cell="eta"]'), run.eta_seconds !== null ? `${formatDuration(run.eta_seconds)} left` : active ? describePhase(run) : "");
  const latest = run.latest;
  writeCell(row.querySelector('[data-cell="reward"]'), formatNumber(latest.reward ?? latest.heldout));
  const heldout = row.querySelector('[data-cell="heldout"]');
  if (heldout) heldout.hidden = !(latest.reward === null && latest.heldout !== null);
  writeCell(row.querySelector('[data-cell="entropy"]'), formatNumber(latest.entropy));
  writeCell(row.querySelector('[data-cell="speed"]'), formatNumber(latest.tokens_per_second));
  refreshLater(REFRESH_MS);
}

function showNewRuns(numbers) {
  for (const number of numbers) fresh.add(number);
  const pill = findTable().querySelector("[data-new-runs]");
  pill.hidden = false;
  pill.textContent = `${fresh.size} new run${fresh.size > 1 ? "s" : ""}`;
}

/* Somebody renamed, tagged or archived the run: its row says so, and stays where it is until the list is opened anew. */
function applyLabels(run) {
  const row = document.querySelector(`tr[data-run="${CSS.escape(run.id)}"]`);
  if (!row) return;
  const badgeOfRow = row.querySelector("[data-archived-badge]");
  if (badgeOfRow) badgeOfRow.hidden = !run.archived;
  refreshLater(0);
}

/* Fetches the same rows again, unless that is due sooner anyway, and copies into those on the page what a state does not carry. */
function refreshLater(wait) {
  const at = Date.now() + wait;
  if (refreshing && refreshAt <= at) return;
  clearTimeout(refreshing);
  refreshing = setTimeout(refreshRows, wait);
  refreshAt = at;
}

async function refreshRows() {
  refreshing = 0;
  if (document.hidden) return;
  if (meanwhile) { refreshLater(200); return; } // an answer that is under way may be older than what this one was asked for
  meanwhile = new Map();
  try {
    const answer = await fetch(findTable().dataset.rowsUrl, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (!answer.ok || answer.redirected) return;
    const other = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const theirs of other.querySelectorAll("tr[data-run]")) {
      const ours = document.querySelector(`tr[data-run="${CSS.escape(theirs.dataset.run)}"]`);
      if (ours) copyCells(theirs, ours);
    }
    const number = Number(other.getElementById("run-table").dataset.newest);
    if (number > newest) showNewRuns(Array.from({ length: number - newest }, (_, index) => newest + 1 + index));
  } catch { /* the next change or connection tries again */ } finally {
    const newer = meanwhile;
    meanwhile = null;
    newer.forEach(applyState); // which also fetches the curves and reasons of these again
  }
}

function copyCells(theirs, ours) {
  [...theirs.children].forEach((cell, index) => {
    const old = ours.children[index];
    if (old && old.matches(".c-pick")) old.firstElementChild.ariaLabel = cell.firstElementChild.ariaLabel; // its tick and its focus stay
    else if (old && old.innerHTML !== cell.innerHTML && !old.matches(":focus-within")) old.replaceWith(document.importNode(cell, true));
  });
}

const socket = new LabSocket(`/ws/teams/${document.body.dataset.team}/`, {
  onOpen() { showBadge("live", "live"); },
  onMessage(message) {
    showBadge("live", "live");
    if (message.type === "listening") refreshLater(0);
    else if (message.type === "state") applyState(message.run);
    else if (message.type === "labels") applyLabels(message.run);
  },
  onClose(code) {
    if (code) showBadge("stale", code === 4401 ? "signed out" : "no longer open to you");
    else showBadge("reconnecting", "reconnecting");
  },
});

setInterval(() => {
  const silent = Math.round((Date.now() - socket.heardAt) / 1000);
  if (socket.isOpen && silent > 12) showBadge("stale", `stale ${silent} s`);
}, 1000);
for (const name of ["visibilitychange", "online"]) {
  (name === "online" ? window : document).addEventListener(name, () => { if (!document.hidden) { socket.connect(); refreshLater(0); } });
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-new-runs]")) location.reload();
  const link = event.target.closest("[data-filters]");
  if (link) syncForm(link.search);
});
document.addEventListener("htmx:afterSwap", () => {
  newest = Number(findTable().dataset.newest);
  fresh.clear();
});

/* The filter form shows what the URL says after a chip was removed, a column sorted, or the person went back. */
function syncForm(search) {
  const form = document.querySelector("form.filters");
  const wanted = new URLSearchParams(search);
  for (const field of form.elements) if (field.name && field !== document.activeElement) field.value = wanted.get(field.name) || (field.name === "sort" ? "-age" : "");
}
document.addEventListener("htmx:pushedIntoHistory", () => syncForm(location.search));

bindListKeys({ items: () => [...document.querySelectorAll("tr[data-run] .c-name > a")], next: ["j", "Next run"], before: ["k", "Run before"] });
socket.connect();
