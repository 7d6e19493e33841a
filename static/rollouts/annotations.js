/* The panel of annotations: swaps what changed, keeps drafts, and looks for news from others.

   The server is the truth: every answer is the whole panel, and only the parts whose data-stamp changed are put in place of the old ones, so that
   nothing moves under the reader and no half-written text is lost. Text of people and models arrives escaped and is parsed, never run. */
import { readSelection } from "./trajectory-selection.js";

export const root = document.getElementById("annotations");
const POLL = 10000;
export const findPanel = () => root.querySelector("#annotation-panel");
export const isWritable = () => findPanel()?.dataset.writable === "1";

/* randomUUID exists on secure origins only; a lab on the local network has none. */
export function makeKey() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `${bytes.slice(0, 8)}-${bytes.slice(8, 12)}-4${bytes.slice(13, 16)}-8${bytes.slice(17, 20)}-${bytes.slice(20)}`;
}

/* Storage may be switched off; then drafts and undo last as long as the page. */
export function accessStorage(kind, name, value) {
  const key = `lab-${name}`;
  try {
    if (value === undefined) return JSON.parse(window[kind].getItem(key));
    if (value === null) window[kind].removeItem(key);
    else window[kind].setItem(key, JSON.stringify(value));
  } catch { /* nothing is kept */ }
  return null;
}
export const nameScope = () => `${findPanel().dataset.person}-${findPanel().dataset.rollout}`;

let changes = 0; // sent or answered so far: what was asked before the last of them may be answered without it
let under = 0; // changes under way
let crossed = false; // two were at once: which of their answers is the newer nobody knows

/* Asks or sends; resolves to {status, body}, with status 0 when the lab cannot be reached. */
export async function askServer(url, data) {
  if (!data) return sendRequest(url);
  changes += 1;
  under += 1;
  crossed ||= under > 1;
  const answer = await sendRequest(url, data);
  changes += 1;
  under -= 1;
  if (crossed && !under) { crossed = false; setTimeout(lookForNews); }
  return answer;
}

async function sendRequest(url, data) {
  const headers = { Accept: "application/json" };
  const options = { headers, credentials: "same-origin" };
  if (data) {
    headers["X-CSRFToken"] = JSON.parse(document.body.getAttribute("hx-headers"))["X-CSRFToken"];
    Object.assign(options, { method: "POST", body: new URLSearchParams(data) });
  }
  try {
    const response = await fetch(url, options);
    const json = (response.headers.get("Content-Type") || "").includes("json") && response.status !== 204;
    if (response.ok && response.status !== 204 && !json) return { status: 403, body: {} }; // the login page, for somebody signed out meanwhile
    return { status: response.status, body: json ? await response.json() : {} };
  } catch {
    return { status: 0, body: {} };
  }
}

export function describeFailure({ status, body }) {
  if (body.error) return body.error;
  if (status === 0) return "The server is unreachable. What you wrote is kept here; send it again in a moment.";
  if (status === 403) return "You are signed out, or your role may not annotate. What you wrote is kept here; reload the page.";
  if (status === 404) return "This rollout or comment is gone. What you wrote is kept here.";
  return `The server answered ${status}. What you wrote is kept here; try again.`;
}

/* Sends a change and shows the panel that comes back. */
export async function sendChange(url, data) {
  const answer = await askServer(url, data);
  if (answer.status === 200) showPanel(answer.body.panel);
  return answer;
}

// ---- swapping

export function showPanel(html) {
  const next = new DOMParser().parseFromString(html || "", "text/html").getElementById("annotation-panel"); // scripts of a parsed document never run
  if (!next) return;
  const now = findPanel();
  if (!now) {
    root.replaceChildren(document.adoptNode(next));
    announcePanel();
    return;
  }
  const known = new Set([...now.querySelectorAll("[data-comment-id]")].map((one) => one.id));
  let kept = false;
  for (const part of next.querySelectorAll("[data-part]:not(.thread)")) swapPart(now.querySelector(`[data-part="${part.dataset.part}"]`), part);
  kept = swapThreads(now.querySelector("[data-threads]"), next.querySelector("[data-threads]"));
  now.querySelector("datalist")?.replaceChildren(...(next.querySelector("datalist")?.children || []));
  now.dataset.version = kept ? "" : next.dataset.version; // what was kept is asked for again
  now.dataset.steps = next.dataset.steps;
  const fresh = [...now.querySelectorAll(".said-comment[data-comment-id]")].filter((one) => !known.has(one.id));
  for (const one of fresh) one.classList.add("fresh");
  document.dispatchEvent(new CustomEvent("annotations:shown"));
}

function swapPart(now, next) { if (now && now.dataset.stamp !== next.dataset.stamp) replacePart(now, next); }

/* Puts a part in place of the old one; what had the focus has it after. */
function replacePart(now, next) {
  const parts = (inside) => [...inside.querySelectorAll("button, a, input, textarea, summary, [tabindex]")];
  const focus = now.contains(document.activeElement) ? parts(now).indexOf(document.activeElement) : -1;
  const scrolled = now.querySelector(".step-marks")?.scrollTop;
  now.replaceWith(next);
  if (scrolled) next.querySelector(".step-marks").scrollTop = scrolled;
  if (focus >= 0) { const all = parts(next); (all[Math.min(focus, all.length - 1)] || findPanel()).focus?.({ preventScroll: true }); }
}

function isWriting(inside) {
  return [...inside.querySelectorAll("textarea")].some((box) => box.value !== box.defaultValue);
}

/* True when a thread was left as it is because somebody writes in it. */
function swapThreads(now, next) {
  let kept = false;
  const wanted = new Set([...next.children].map((one) => one.id));
  for (const thread of [...now.children]) {
    if (wanted.has(thread.id)) continue;
    if (isWriting(thread)) kept = true;
    else thread.remove();
  }
  for (const thread of [...next.children]) {
    const old = document.getElementById(thread.id);
    if (!old || !now.contains(old)) { now.append(thread); continue; }
    if (old.dataset.stamp === thread.dataset.stamp) continue;
    const body = old.querySelector("[data-body]");
    if (isWriting(body)) { kept = true; continue; }
    replacePart(body, thread.querySelector("[data-body]"));
    old.className = thread.className;
    old.dataset.stamp = thread.dataset.stamp;
    if ("resolved" in thread.dataset) old.dataset.resolved = "";
    else delete old.dataset.resolved;
  }
  return kept;
}

// ---- forms

/* What the comment will be about: tokens {start, end, text}, or the whole rollout. */
export function anchorComment(form, range) {
  form.elements.start.value = range ? range.start : "";
  form.elements.end.value = range ? range.end : "";
  const line = form.querySelector("[data-anchor]");
  line.hidden = !range;
  const text = range ? range.text.trim() || range.text : "";
  line.querySelector("[data-quote]").textContent = range ? text.slice(0, 200) + (text.length > 200 ? "…" : "") : "";
  document.dispatchEvent(new CustomEvent("annotations:anchored", { detail: range }));
  line.title = range ? `Tokens ${range.start} to ${range.end}` : "";
}

export function startComment() {
  const form = root.querySelector(".comment-form");
  if (!form) return;
  const range = readSelection();
  if (range) { anchorComment(form, range); keepDraft(form); }
  form.elements.text.focus();
}

root.addEventListener("click", (event) => {
  const drop = event.target.closest("[data-drop-anchor]");
  if (drop) { const form = drop.closest("form"); anchorComment(form, null); keepDraft(form); form.elements.text.focus(); }
});

root.addEventListener("keydown", (event) => {
  const form = event.target.closest("form");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea")) { event.preventDefault(); form.requestSubmit(); }
  if (event.key === "Escape" && event.target.matches("input, textarea")) { event.target.blur(); event.stopPropagation(); }
});

// ---- drafts

const nameDraft = (form) => `draft-${nameScope()}-${form.dataset.draft}`;
const fields = ["text", "start", "end", "key", "seen"];

function keepDraft(form) {
  const text = form.elements.text;
  if (text.value === text.defaultValue && !form.elements.start?.value) { forgetDraft(form); return; }
  const kept = { quote: form.querySelector("[data-quote]")?.textContent || "" };
  for (const name of fields) if (form.elements[name]) kept[name] = form.elements[name].value;
  accessStorage("localStorage", nameDraft(form), kept);
}

export function forgetDraft(form) { if (form.dataset.draft) accessStorage("localStorage", nameDraft(form), null); }

function restoreDrafts() {
  for (const form of root.querySelectorAll("form[data-draft]")) {
    const kept = accessStorage("localStorage", nameDraft(form));
    if (!kept) continue;
    if (kept.start && form.elements.start) anchorComment(form, { start: kept.start, end: kept.end, text: kept.quote });
    for (const name of fields) if (form.elements[name] && kept[name]) form.elements[name].value = kept[name];
    const fold = form.closest("details");
    if (fold && kept.text) fold.open = true;
  }
}

root.addEventListener("input", (event) => {
  const form = event.target.closest("form");
  if (form?.dataset.draft) keepDraft(form);
  event.target.removeAttribute("aria-invalid");
  const box = form?.querySelector("[data-error]");
  if (box) box.textContent = "";
});

// ---- the first panel, and news

function announcePanel() {
  restoreDrafts();
  document.dispatchEvent(new CustomEvent("annotations:shown", { detail: { first: true } }));
}

let asking = false;
async function lookForNews() {
  if (asking || document.hidden) return;
  asking = true;
  const known = findPanel()?.dataset.version || "";
  const before = changes;
  const answer = await askServer(known ? `${root.dataset.url}?version=${known}` : root.dataset.url);
  asking = false;
  if (before !== changes) return; // a change came between: its own answer is shown
  if (answer.status === 200) showPanel(answer.body.panel);
  else if (!findPanel()) root.textContent = describeFailure(answer);
}

document.addEventListener("visibilitychange", lookForNews);
setInterval(lookForNews, POLL);
document.addEventListener("DOMContentLoaded", () => { if (findPanel()) announcePanel(); else lookForNews(); });
