/* Runs of a comparison that still train: the team's socket says which of them moved, and what is new of these is fetched, not more often than every
   few seconds. It ends with the last of them. */
import { LabSocket } from "../base/socket.js";

const EVERY = 2000; // ms
const ENDED = ["finished", "stopped", "failed"];
const badge = document.querySelector("[data-live-badge]");

function showBadge(state, words) {
  badge.hidden = !state;
  badge.dataset.state = state;
  badge.textContent = words;
}

/* ``refresh`` is told the numbers of runs that moved and fetches what is new of them. */
export function followRuns(numbers, refresh) {
  const open = new Set(numbers);
  const moved = new Set(numbers);
  let timer = 0;

  async function refreshMoved() {
    if (document.hidden) { timer = 0; return; }
    const taken = [...moved];
    moved.clear();
    try {
      await refresh(taken);
    } catch {
      for (const number of taken) moved.add(number); // the lab is away; it is tried again
    }
    timer = moved.size ? setTimeout(refreshMoved, EVERY) : 0;
    if (!moved.size && !open.size) end();
  }

  function refreshSoon(wait = EVERY) { if (moved.size) timer ||= setTimeout(refreshMoved, wait); }

  function end() {
    socket.disconnect();
    clearInterval(watching);
    showBadge("", "");
  }

  const socket = new LabSocket(`/ws/teams/${document.body.dataset.team}/`, {
    onOpen() { showBadge("live", "live"); },
    onMessage(message) {
      showBadge("live", "live");
      if (message.type === "listening") { for (const number of open) moved.add(number); refreshSoon(0); }
      if (message.type !== "state" || !open.has(message.run.number)) return;
      moved.add(message.run.number);
      if (ENDED.includes(message.run.status)) open.delete(message.run.number);
      refreshSoon();
    },
    onClose(code) {
      if (code) showBadge("stale", code === 4401 ? "signed out" : "no longer open to you");
      else showBadge("reconnecting", "reconnecting");
    },
  });
  const watching = setInterval(() => {
    const silent = Math.round((Date.now() - socket.heardAt) / 1000);
    if (socket.isOpen && silent > 12) showBadge("stale", `stale ${silent} s`);
  }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && open.size) { socket.connect(); refreshSoon(0); } });
  socket.connect();
}
