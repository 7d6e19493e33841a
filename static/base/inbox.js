/* On every page: the number of unread notices, live, and a toast for each new one. Only a page that is seen holds a socket. */
import { announce, showToast } from "./page.js";
import { LabSocket } from "./socket.js";

const badge = document.querySelector("[data-unread]");
const team = document.body.dataset.team;

function readStoredCount() {
  try { return Number(sessionStorage.getItem(`unread-${team}`)) || 0; } catch { return 0; }
}

/* The number stands in the title of no page: a tab that is not looked at holds no socket and would show an old one. */
function showCount(unread) {
  badge.hidden = !unread;
  badge.textContent = unread > 99 ? "99+" : String(unread);
  badge.setAttribute("aria-label", `${unread} unread`);
  try { sessionStorage.setItem(`unread-${team}`, String(unread)); } catch { /* the next page then begins without */ }
}

function showNotice(notice) {
  showToast(notice.subject, "", 10);
  const toast = document.querySelector("[data-toasts]").lastElementChild;
  const link = Object.assign(document.createElement("a"), { href: badge.dataset.open.replace("00000000-0000-0000-0000-000000000000", notice.id), textContent: "Open" });
  toast.firstElementChild.append(" ", link);
  announce(notice.subject);
}

function receive(message) {
  if (message.type !== "inbox") return;
  showCount(message.unread);
  for (const notice of message.new) showNotice(notice);
  if (message.new.length) document.dispatchEvent(new CustomEvent("lab:inbox", { detail: message }));
}

function listenToInbox() {
  const socket = new LabSocket(`/ws/inbox/${team}/`, {
    onMessage: receive,
    onClose: (code) => { if (code) document.dispatchEvent(new CustomEvent("lab:gone", { detail: { code } })); },
  });
  const follow = () => { if (document.hidden) socket.disconnect(); else socket.connect(); };
  document.addEventListener("visibilitychange", follow);
  follow();
}

if (badge && team) {
  showCount(readStoredCount());
  listenToInbox();
}
