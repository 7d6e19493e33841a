/* Find in the whole completion, also in what is not on the page: matches are places in the text, marked by the tokens they touch. */
import { findUnitAt } from "./trajectory-data.js";
import { reader } from "./trajectory-reader.js";
import { completion } from "./trajectory-text.js";

const MOST = 2000; // matches that are marked and walked through

const bar = document.getElementById("find-bar");
const input = document.getElementById("find-input");
const count = document.getElementById("find-count");
let matches = []; // [first token, token after the last]
let current = -1;

export function openFind() {
  bar.hidden = false;
  input.focus();
  input.select();
  if (input.value) searchText();
}

function closeFind() {
  bar.hidden = true;
  matches = [];
  current = -1;
  completion.unmark("found");
  completion.unmark("found-now");
  document.getElementById("text").focus({ preventScroll: true });
}

function searchText() {
  const { data } = completion;
  matches = [];
  let more = false;
  if (input.value && data) {
    const wanted = new RegExp(input.value.replace(/[\\^$.*+?()[\]{}|/-]/g, (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, "0")}`), "giu");
    for (const match of data.text.matchAll(wanted)) {
      if (matches.length === MOST) { more = true; break; }
      const [first, last] = [match.index, match.index + match[0].length - 1].map((place) => data.units[findUnitAt(data, place)]);
      if (last[2]) matches.push([first[1], last[1] + last[2]]);
    }
  }
  const from = reader.state.token ?? completion.inView()?.[0] ?? 0;
  const next = matches.findIndex(([start]) => start >= from);
  current = matches.length ? Math.max(0, next) : -1;
  completion.replaceMarks("found", matches);
  showMatch(more);
}

function showMatch(more = false) {
  const now = matches[current];
  count.textContent = !input.value ? "" : !matches.length ? "nothing found" : `${current + 1} of ${matches.length}${more ? "+" : ""}`;
  completion.replaceMarks("found-now", now ? [now] : []);
  if (now) completion.scrollTo(now[0]);
}

function moveMatch(by) {
  if (!matches.length) return;
  current = (current + by + matches.length) % matches.length;
  showMatch();
}

let soon = 0;
input.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(searchText, 120); });
bar.addEventListener("submit", (event) => event.preventDefault());
input.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { event.stopPropagation(); closeFind(); }
  if (event.key === "Enter") { event.preventDefault(); moveMatch(event.shiftKey ? -1 : 1); }
});
bar.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.value === "close") closeFind();
  else moveMatch(button.value === "before" ? -1 : 1);
});
