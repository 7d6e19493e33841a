/* What the labelling page keeps and sends. An answer is in the outbox from the moment it is given until the server has confirmed it; its key is
   made once, so that sending it again makes no second one. Drafts are kept here too, until the server has them. */
import { page } from "./page.js";

const SECONDS = 20; // for one request
const RETRIES = [1, 2, 4, 8, 15, 30]; // seconds between attempts
const prefix = `lab-labels-${page.person}-${page.queue.id}-`;
const memory = new Map(); // where the browser keeps nothing
const watchers = [];
let flushing = null;
let attempt = 0;
let timer = 0;

function readKept(name, otherwise = null, scope = prefix) {
  if (memory.has(scope + name)) return memory.get(scope + name) ?? otherwise;
  try { return JSON.parse(localStorage.getItem(scope + name)) ?? otherwise; } catch { return otherwise; }
}

function keepValue(name, value, scope = prefix) {
  try {
    if (value === null) localStorage.removeItem(scope + name);
    else localStorage.setItem(scope + name, JSON.stringify(value));
    memory.delete(scope + name);
  } catch { // switched off, or full
    memory.set(scope + name, value);
  }
}

/* randomUUID exists on secure origins only; a lab on the local network has none. */
function makeKey() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${bytes.slice(0, 8)}-${bytes.slice(8, 12)}-4${bytes.slice(13, 16)}-8${bytes.slice(17, 20)}-${bytes.slice(20)}`;
}

/* Signing in again, in another tab, changes the token: the cookie has the new one, the page the one it was loaded with. */
function readCsrfToken() {
  return document.cookie.match(/(?:^|; )(?:__Host-)?csrftoken=([^;]+)/)?.[1] || JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
}

/* {status, body}; status 0: the lab cannot be reached, 401: signed out meanwhile. */
async function postJson(url, data, keepalive = false) {
  const headers = { Accept: "application/json", "Content-Type": "application/json", "X-CSRFToken": readCsrfToken() };
  const waiting = new AbortController();
  const limit = setTimeout(() => waiting.abort(), SECONDS * 1000);
  try {
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(data), credentials: "same-origin", keepalive, signal: waiting.signal });
    const json = (response.headers.get("Content-Type") || "").includes("json");
    if (!json && (response.ok || response.status === 403)) return { status: 401, body: {} }; // the login page, or a session that is over
    return { status: response.status, body: json ? await response.json() : {} };
  } catch {
    return { status: 0, body: {} };
  } finally { clearTimeout(limit); }
}

const isPassing = (status) => status === 0 || status === 401 || status === 429 || status >= 500; // sent again later

// ---- the outbox

const readOutbox = () => readKept("outbox", []);

function addToOutbox(entry) { keepValue("outbox", [...readOutbox(), entry]); }

function takeFromOutbox(key) { keepValue("outbox", readOutbox().filter((one) => one.key !== key)); }

/* Sends what waits, in order. Resolves to whether nothing waits any more. settled(entry, answer) hears of each that was answered for good. */
function flushOutbox() {
  flushing = flushing || sendOutbox().finally(() => { flushing = null; });
  return flushing;
}

async function sendOutbox() {
  clearTimeout(timer);
  for (let entry = readOutbox()[0]; entry; entry = readOutbox()[0]) {
    keepValue("outbox", readOutbox().map((one) => (one.key === entry.key ? { ...one, tried: true } : one)));
    const answer = await postJson(entry.url, entry.body);
    if (isPassing(answer.status)) {
      tellWatchers(answer.status === 401 ? "out" : "offline");
      timer = setTimeout(flushOutbox, 1000 * RETRIES[Math.min(attempt, RETRIES.length - 1)]);
      attempt += 1;
      return false;
    }
    takeFromOutbox(entry.key);
    store.settled(entry, answer);
  }
  attempt = 0;
  tellWatchers("online");
  return true;
}

function tellWatchers(state) { for (const watch of watchers) watch(state, readOutbox().length); }

window.addEventListener("online", () => flushOutbox());
window.addEventListener("offline", () => tellWatchers("offline"));
window.addEventListener("beforeunload", (event) => { if (memory.size && readOutbox().length) event.preventDefault(); }); // nowhere else to keep them

export const store = { kept: readKept, keep: keepValue, newKey: makeKey, ask: postJson, passing: isPassing, outbox: readOutbox, post: addToOutbox, take: takeFromOutbox, flush: flushOutbox, watch: (heard) => watchers.push(heard), settled() {} };
