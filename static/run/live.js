/* The socket of a run page: one a page, reconnected for as long as the page is open. Pages listen with liveRun.on(type, handler):
   "delta" (points and counts that continue the cursor), "state", "reset" (what the page shows is no longer a prefix of the truth),
   "edits" (somebody asked for an edit of the run, or took one back). */
import { formatCompact, formatDuration, formatNumber } from "../base/numbers.js";
import { announce, showToast } from "../base/page.js";
import { showPart } from "../base/parts.js";
import { LabSocket } from "../base/socket.js";

const root = document.getElementById("run");

const STALE_SECONDS = 12;
const ACTIVE = ["starting", "running", "stopping"];
const OPEN = ["queued", "lost", ...ACTIVE];
const badge = document.getElementById("live-badge");
const HELLO_MS = 500;
const handlers = { delta: [], state: [], reset: [], edits: [] };

const socket = new LabSocket(`/ws/runs/${root.dataset.run}/`, {
  onOpen: sayHello,
  onMessage: receive,
  onClose(code) {
    if (code) showToast(code === 4401 ? "You are signed out. Sign in again to follow this run." : "This run is no longer open to you.", "warning", 0);
    showBadge();
  },
});
let cursor = Number(root.dataset.cursor);
let started = false;
let loading = false; // the page's data is being fetched anew: what arrives meanwhile is part of it
let hello = 0;
let asking = 0; // the timer of the next hello
let latest = null;

function callHandlers(type, message) {
  for (const handler of handlers[type]) handler(message);
}

function sayHello() {
  clearTimeout(asking);
  asking = 0;
  if (loading || !socket.isOpen) return;
  hello = Date.now();
  socket.send({ type: "hello", cursor });
}

/* At most one hello in HELLO_MS. The last one counts: after the end of a run nothing comes that would tell of a gap again. */
function sayHelloSoon() {
  if (!asking) asking = setTimeout(sayHello, Math.max(0, hello + HELLO_MS - Date.now()));
}

function receive(message) {
  if (message.type === "state") applyState(message.run);
  else if (message.type === "labels") refreshLabels();
  else if (message.type === "edits") callHandlers("edits", message);
  else if (message.type === "reset") onReset(message);
  else if (message.type === "delta") onDelta(message);
  showBadge();
}

function onDelta(message) {
  if (loading || message.to <= cursor) return;
  if (message.from !== cursor) { // a gap or an overlap: the server is told where this page stands
    sayHelloSoon();
    return;
  }
  cursor = message.to;
  callHandlers("delta", message);
  if (message.state) applyState(message.state);
}

function onReset(message) {
  if (loading) return;
  cursor = message.to;
  if (message.state) applyState(message.state);
  callHandlers("reset", message);
}

function applyState(state) {
  if (!state || state.id !== root.dataset.run) return;
  latest = state;
  const head = document.getElementById("run-head");
  if (head && (state.status !== head.dataset.status || String(state.attempt) !== head.dataset.attempt)) refreshHeader(state);
  root.dataset.status = state.status;
  fillHeader(state);
  callHandlers("state", state);
}

let refreshing = "";
/* Somebody renamed, tagged or archived the run. */
function refreshLabels() {
  if (!isRenaming()) showPart("run-head", `${root.dataset.url}?part=header&tab=${root.dataset.tab}`);
}

/* The title of the page follows the name, whoever drew the header anew. */
document.addEventListener("htmx:afterSettle", (event) => { if (latest && event.target.closest("#run-head")) fillHeader(latest); });

/* What somebody types is not replaced: saving or cancelling draws the header anew. */
const isRenaming = () => Boolean(document.querySelector("#run-head [data-renaming]"));

async function refreshHeader(state) {
  if (isRenaming()) return;
  const wanted = `${state.status}.${state.attempt}`;
  if (refreshing === wanted) return;
  refreshing = wanted;
  const shown = await showPart("run-head", `${root.dataset.url}?part=header&tab=${root.dataset.tab}`);
  if (refreshing !== wanted) return; // a later state came, whose call goes on
  refreshing = "";
  if (shown) announce(`The run is ${state.status}.`);
  fillHeader(latest);
}

function writeValue(name, text) {
  for (const element of document.querySelectorAll(`[data-live="${name}"]`)) if (element.textContent !== text) element.textContent = text;
}

function showRow(name, shown) {
  const element = document.querySelector(`[data-live-row="${name}"]`);
  if (element) element.hidden = !shown;
}

function fillHeader(state) {
  writeValue("step", String(state.step));
  writeValue("total_steps", String(state.total_steps));
  showRow("total_steps", Boolean(state.total_steps));
  writeValue("phase", state.phase_total ? `${state.phase} ${state.phase_done}/${state.phase_total}` : state.phase);
  showRow("phase", Boolean(state.phase) && state.phase !== "training" && ACTIVE.includes(state.status)); // the step says that
  writeValue("eta", state.eta_seconds === null ? "" : formatDuration(state.eta_seconds));
  showRow("eta", state.eta_seconds !== null);
  writeValue("tokens", formatCompact(state.tokens));
  if (state.tokens) showRow("tokens", true); // a run that was trained elsewhere may not tell them
  writeValue("rollouts", state.rollouts ? formatCompact(state.rollouts) : "");
  for (const name of ["reward", "heldout"]) if (typeof state.latest[name] === "number") writeValue(name, formatNumber(state.latest[name]));
  const bar = document.querySelector("[data-live=progress]");
  if (bar) bar.value = state.progress === null ? 0 : state.progress;
  const stalled = document.querySelector("[data-live=stalled]");
  if (stalled) stalled.hidden = state.stalled_seconds === null;
  if (state.stalled_seconds !== null) writeValue("stalled_for", formatDuration(state.stalled_seconds));
  const clock = document.querySelector("[data-live=elapsed]");
  if (clock) { clock.dataset.started = state.started_at || ""; clock.dataset.finished = state.finished_at || ""; }
  showRow("elapsed", Boolean(state.started_at));
  const name = document.querySelector("#run-head h1 bdi");
  const percent = state.progress === null || !ACTIVE.includes(state.status) ? "" : ` ${Math.floor(state.progress * 100)} %`;
  if (name) document.title = `#${state.number} ${name.textContent} · ${state.status}${percent}`;
  showElapsed();
}

function showElapsed() {
  const clock = document.querySelector("[data-live=elapsed]");
  if (!clock || !clock.dataset.started) return;
  const end = clock.dataset.finished ? Date.parse(clock.dataset.finished) : Date.now();
  const words = formatDuration(Math.max(0, (end - Date.parse(clock.dataset.started)) / 1000));
  if (clock.textContent !== words) clock.textContent = words;
}

function showBadge() {
  const silent = Math.floor((Date.now() - socket.heardAt) / 1000);
  const open = OPEN.includes(root.dataset.status);
  let [state, words] = ["live", open ? "live" : "up to date"];
  if (socket.refused) [state, words] = ["stale", socket.refused === 4401 ? "signed out" : "not available"];
  else if (silent > STALE_SECONDS) [state, words] = ["stale", `stale ${formatDuration(silent)}`];
  else if (!socket.isOpen) [state, words] = ["reconnecting", socket.hasOpened ? "reconnecting" : "connecting"];
  if (badge.dataset.state !== state) badge.dataset.state = state;
  if (badge.textContent !== words) badge.textContent = words;
}

setInterval(() => {
  if (!started || document.hidden) return;
  showBadge();
  showElapsed();
}, 1000);

document.addEventListener("visibilitychange", () => {
  if (!started || document.hidden) return;
  if (!socket.isOpen) socket.replace();
  else sayHello();
  showElapsed();
});
window.addEventListener("online", () => started && socket.replace());
document.addEventListener("lab:said", (event) => showToast(event.detail.text, event.detail.tone));

export const liveRun = {
  on(type, handler) { handlers[type].push(handler); },
  start(from = cursor) { cursor = from; started = true; loading = false; socket.connect(); showBadge(); },
  get cursor() { return cursor; },
  get state() { return latest; },
  isOpen() { return OPEN.includes(root.dataset.status); },
  apply: applyState,
  /* Runs load(), which fetches the page's data and returns its cursor, and goes on from there. */
  async reload(load) {
    loading = true;
    try { cursor = await load(); } finally { loading = false; }
    sayHello();
  },
};

if (root.dataset.tab !== "overview") liveRun.start();
