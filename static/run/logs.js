/* The logs tab: lines come from the server as [classes, text] spans and become text nodes; the view follows the end until one scrolls up. */
import { liveRun } from "./live.js";

const root = document.getElementById("logs");
const log = document.getElementById("log");

const MOST_LINES = 5000;
const follow = document.getElementById("follow-log");
const pill = document.getElementById("log-pill");
let cursor = root.dataset.cursor;
let openLine = root.dataset.openLine === "1"; // the last line has no newline yet and will come again
let seen = "";
let busy = false;
let asked = false;

function makeLine(spans) {
  const made = document.createElement("div");
  made.className = "log-line";
  for (const [classes, text] of spans) made.append(Object.assign(document.createElement("span"), { className: classes, textContent: text }));
  return made;
}

function isAtEnd() { return log.scrollHeight - log.scrollTop - log.clientHeight < 40; }
function scrollToEnd() { log.scrollTop = log.scrollHeight; pill.hidden = true; }

async function fetchMore() {
  if (busy) { asked = true; return; }
  busy = true;
  try {
    let full = true;
    while (full) {
      const response = await fetch(`${root.dataset.url}?attempt=${root.dataset.attempt}&after=${encodeURIComponent(cursor)}`);
      if (!response.ok) return;
      const more = await response.json();
      if (String(more.newest) !== root.dataset.attempt && more.newest) offerAttempt(more.newest);
      if (root.dataset.attempt === "0" && more.attempt) root.dataset.attempt = more.attempt;
      full = more.more && more.cursor !== cursor;
      addLines(more);
    }
  } finally {
    busy = false;
    if (asked) { asked = false; fetchMore(); }
  }
}

function addLines(more) {
  if (!more.lines.length) return;
  log.hidden = false;
  document.getElementById("log-empty").hidden = true;
  const following = follow.checked && isAtEnd();
  if (openLine && log.lastElementChild) log.lastElementChild.remove();
  const nodes = document.createDocumentFragment();
  for (const spans of more.lines) nodes.append(makeLine(spans));
  log.append(nodes);
  while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
  [cursor, openLine] = [more.cursor, more.open_line];
  if (following) scrollToEnd();
  else pill.hidden = false;
}

function offerAttempt(number) {
  const note = document.getElementById("new-attempt");
  note.hidden = false;
  note.querySelector("[data-number]").textContent = number;
}

log.addEventListener("scroll", () => {
  follow.checked = isAtEnd();
  if (follow.checked) pill.hidden = true;
}, { passive: true });
follow.addEventListener("change", () => { if (follow.checked) scrollToEnd(); });
pill.addEventListener("click", () => { follow.checked = true; scrollToEnd(); });

liveRun.on("delta", (delta) => { if (delta.logs) fetchMore(); });
liveRun.on("reset", fetchMore);
liveRun.on("state", (state) => {
  const now = (state.log || []).join(".");
  if (now !== seen) { seen = now; fetchMore(); }
});
if (follow.checked) scrollToEnd();
