/* The list of rollouts beside which the chosen one stands in full, where there is room: a line that gets the focus is the chosen one, and a
   click chooses it; Enter opens its page. Without room, or without this script, a line is a link to the page. */
import { showToast } from "../base/page.js";

const ROOM = matchMedia("(min-width: 1100px)"); // as in answers.css
const shows = []; // called when a rollout stands beside the list
let asked = 0;

const findPane = () => document.getElementById("reading-pane");
const findLines = () => [...document.querySelectorAll("#groups [data-line]")];

async function choose(line) {
  const pane = findPane();
  if (!pane || !ROOM.matches || line.matches("[aria-current]")) return;
  for (const other of findLines()) other.removeAttribute("aria-current");
  line.setAttribute("aria-current", "true");
  const mine = ++asked;
  const response = await fetch(line.dataset.line).catch(() => null);
  if (mine !== asked) return;
  if (!response || !response.ok) { line.removeAttribute("aria-current"); showToast("The rollout could not be loaded. Choose it again to retry.", "error"); return; }
  const parsed = new DOMParser().parseFromString(await response.text(), "text/html"); // scripts of a parsed document never run
  if (mine !== asked || !pane.isConnected) return;
  pane.replaceChildren(...document.adoptNode(parsed.body).childNodes);
  pane.hidden = false;
  pane.scrollTop = 0;
  for (const show of shows) show();
}

/* The first line is the chosen one where none is yet. */
function start() {
  const lines = findLines();
  if (lines.length && !lines.some((line) => line.matches("[aria-current]"))) choose(lines[0]);
}

document.addEventListener("focusin", (event) => { const line = event.target.closest("[data-line]"); if (line) choose(line); });
document.addEventListener("click", (event) => {
  const line = event.target.closest("[data-line]");
  const isPlain = event.detail > 0 && !event.button && !event.ctrlKey && !event.metaKey && !event.shiftKey; // a click that Enter made has no detail
  if (!line || !isPlain || !ROOM.matches) return;
  event.preventDefault();
  choose(line);
});
ROOM.addEventListener("change", start);
start();

export const readingList = { start, onShow: (show) => shows.push(show) };
