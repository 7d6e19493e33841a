/* On every page: the number of unread notices, live, and a toast for each new one. Only a page that is seen holds a socket. */
import { announce, showToast } from "./page.js";

const badge = document.querySelector("[data-unread]");
const team = document.body.dataset.team;

const GONE = [4401, 4404]; // signed out, or no longer in the team
const SILENT = 30000; // a socket that says nothing for so long is replaced
let socket = null;
let tries = 0;
let retry = 0;
let heard = 0;
let over = false;

function stored() {
  try { return Number(sessionStorage.getItem(`unread-${team}`)) || 0; } catch { return 0; }
}

/* The number stands in the title of no page: a tab that is not looked at holds no socket and would show an old one. */
function show(unread) {
  badge.hidden = !unread;
  badge.textContent = unread > 99 ? "99+" : String(unread);
  badge.setAttribute("aria-label", `${unread} unread`);
  try { sessionStorage.setItem(`unread-${team}`, String(unread)); } catch { /* the next page then begins without */ }
}

function tell(notice) {
  showToast(notice.subject, "", 10);
  const toast = document.querySelector("[data-toasts]").lastElementChild;
  const link = Object.assign(document.createElement("a"), { href: badge.dataset.open.replace("00000000-0000-0000-0000-000000000000", notice.id), textContent: "Open" });
  toast.firstElementChild.append(" ", link);
  announce(notice.subject);
}

function receive(text) {
  let message;
  try { message = JSON.parse(text); } catch { return; }
  heard = Date.now();
  tries = 0;
  if (!message || message.type !== "inbox") return;
  show(message.unread);
  for (const notice of message.new) tell(notice);
  if (message.new.length) document.dispatchEvent(new CustomEvent("lab:inbox", { detail: message }));
}

function connect() {
  clearTimeout(retry);
  if (over || document.hidden || socket) return;
  const own = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/inbox/${team}/`);
  socket = own;
  heard = Date.now();
  own.onmessage = (event) => { if (own === socket) receive(event.data); };
  own.onclose = (event) => {
    if (own !== socket) return;
    socket = null;
    over = GONE.includes(event.code);
    tries += 1;
    if (over) document.dispatchEvent(new CustomEvent("lab:gone", { detail: { code: event.code } }));
    else retry = setTimeout(connect, Math.min(30000, 1000 * 2 ** tries) * (0.5 + Math.random() / 2));
  };
}

function hang() {
  const old = socket;
  socket = null;
  if (old) old.close();
}

if (badge && team) {
  document.addEventListener("visibilitychange", () => { if (document.hidden) hang(); else connect(); });
  setInterval(() => { if (socket && Date.now() - heard > SILENT) { hang(); connect(); } }, 5000);
  show(stored());
  connect();
}
