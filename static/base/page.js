/* What every page does: theme, menus, toasts, dialogs, keys, copying, announcements. */
const keys = [];

export function showToast(text, tone = "info", seconds = 6) {
  const box = document.querySelector("[data-toasts]");
  if (!box) return null;
  const item = document.createElement("div");
  item.className = `toast ${tone}`;
  item.append(Object.assign(document.createElement("span"), { textContent: text }));
  const close = Object.assign(document.createElement("button"), { className: "icon-button", type: "button", textContent: "×" });
  close.dataset.dismiss = "";
  close.setAttribute("aria-label", "Dismiss");
  item.append(close);
  box.append(item);
  if (seconds) setTimeout(() => item.remove(), seconds * 1000);
  return item;
}

export function announce(text) {
  const region = document.getElementById("announcer");
  if (region) region.textContent = text;
}

/* Handler is a function; "[" or "g r" (pressed one after the other) name the key. What comes back may be given another combination. */
export function bindKey(combination, label, handler) {
  const entry = { combination, label, handler };
  keys.push(entry);
  return entry;
}

function isTyping(target) {
  return target.isContentEditable || (target.closest && target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), select, textarea"));
}

function listBindings() {
  const marked = [...document.querySelectorAll("[data-key]")].map((element) => ({
    combination: element.dataset.key,
    label: element.dataset.keyLabel || element.textContent.trim(),
    everywhere: Boolean(element.closest(".rail")),
    handler: () => (element.matches("input, select, textarea") ? (element.focus(), element.select && element.select()) : element.click()),
  }));
  return [...keys, ...marked];
}

let prefix = "";
let forget = 0;
document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "?") { openKeySheet(); event.preventDefault(); return; }
  const pressed = prefix ? `${prefix} ${event.key}` : event.key;
  const all = listBindings();
  const hit = all.find((item) => item.combination === pressed);
  clearTimeout(forget);
  prefix = "";
  if (hit) { event.preventDefault(); hit.handler(event); return; }
  if (all.some((item) => item.combination.startsWith(`${event.key} `))) {
    prefix = event.key;
    forget = setTimeout(() => { prefix = ""; }, 1200);
  }
});

const SIGNS = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓" };

function openKeySheet() {
  const sheet = document.getElementById("key-sheet");
  const list = sheet && sheet.querySelector("[data-keys]");
  if (!list) return;
  list.replaceChildren();
  const listed = new Set(); // a key a page takes for itself answers to the page only
  const all = listBindings();
  const always = [{ combination: "?", label: "This list" }, { combination: "Ctrl K", label: "Find a page, an action or words" }];
  const order = [...all.filter((item) => !item.everywhere), ...always, ...all.filter((item) => item.everywhere)]; // the page's own first
  for (const item of order) {
    const first = item.combination.split(" ")[0];
    if (listed.has(item.combination) || (first !== item.combination && all.some((other) => other.combination === first))) continue;
    listed.add(item.combination);
    const term = document.createElement("dt");
    for (const part of item.combination.split(" ")) term.append(Object.assign(document.createElement("kbd"), { className: "kbd", textContent: SIGNS[part] || part }), " ");
    const row = document.createElement("div");
    row.append(term, Object.assign(document.createElement("dd"), { textContent: item.label }));
    list.append(row);
  }
  sheet.showModal();
  sheet.scrollTop = 0; // the focus is on Close, at its end
}

/* Asks in the page's own dialog; resolves to whether the person said yes. */
function askConfirmation(question, text = "", yes = "Yes") {
  const dialog = document.getElementById("confirm-dialog");
  if (!dialog) return Promise.resolve(window.confirm(question));
  dialog.querySelector("h2").textContent = question;
  dialog.querySelector("[data-confirm-text]").textContent = text;
  dialog.querySelector("[data-confirm-yes]").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  for (const button of document.querySelectorAll("[data-theme-choice] button")) button.setAttribute("aria-pressed", String(button.value === theme));
  document.dispatchEvent(new CustomEvent("lab:theme"));
}

function readTheme() {
  try { return localStorage.getItem("lab-theme") || "system"; } catch { return "system"; }
}

document.addEventListener("click", async (event) => {
  const target = event.target.closest("[data-theme-choice] button, [data-dismiss], [data-opens], [data-copy], [data-copy-from]");
  for (const menu of document.querySelectorAll("details[data-menu][open]")) if (!menu.contains(event.target)) menu.open = false;
  if (!target) return;
  if (target.matches("[data-theme-choice] button")) {
    try { localStorage.setItem("lab-theme", target.value); } catch { /* the choice then lasts for this page */ }
    applyTheme(target.value);
  } else if (target.matches("[data-dismiss]")) {
    target.closest(".toast").remove();
  } else if (target.matches("[data-opens]")) {
    if (target.dataset.opens === "key-sheet") openKeySheet();
    else document.getElementById(target.dataset.opens).showModal();
  } else {
    const text = target.dataset.copy ?? document.getElementById(target.dataset.copyFrom).textContent;
    try {
      await navigator.clipboard.writeText(text);
      showToast("Copied", "success", 2);
    } catch {
      showToast("The browser did not allow copying; select the text instead.", "warning");
    }
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of document.querySelectorAll("details[data-menu][open]")) { menu.open = false; menu.querySelector("summary").focus(); }
});

/* A form or button with data-confirm asks first; data-confirm-text and data-confirm-yes fill the dialog. */
document.addEventListener("submit", async (event) => {
  const form = event.target;
  const asks = [event.submitter, form].find((element) => element && element.dataset.confirm);
  if (!asks || form.dataset.confirmed === "yes") { delete form.dataset.confirmed; return; }
  event.preventDefault();
  event.stopImmediatePropagation();
  if (await askConfirmation(asks.dataset.confirm, asks.dataset.confirmText, asks.dataset.confirmYes)) {
    // A live page may have replaced the form while the question stood: its successor is sent then.
    const now = form.isConnected ? form : [...document.forms].find((other) => other.action === form.action);
    if (!now) { showToast("This is not possible any more.", "warning"); return; }
    now.dataset.confirmed = "yes";
    now.requestSubmit(form.isConnected ? event.submitter : null);
  }
}, true);

document.addEventListener("htmx:responseError", (event) => {
  const { status, responseText: words } = event.detail.xhr;
  if ([429, 503].includes(status) && words && !words.includes("<")) { showToast(words, "warning"); return; } // the lab says why, and what to do
  showToast(status === 403 ? "You are signed out or not allowed to do this. Reload the page." : `The server answered ${status}. Nothing was changed; try again.`, "error", 0);
});
document.addEventListener("htmx:sendError", () => showToast("The server is unreachable. Check that it is running and try again.", "error"));

/* The words of lab/lib/timeago.py: one unit, rounded down. */
function formatAge(seconds) {
  if (seconds < 5) return "now";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) if (seconds >= length) return `${Math.floor(seconds / length)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}

function refreshAges() {
  if (document.hidden) return;
  for (const item of document.querySelectorAll("time[data-since]")) {
    const words = formatAge((Date.now() - Date.parse(item.dateTime)) / 1000);
    if (item.textContent !== words) item.textContent = words;
  }
}
setInterval(refreshAges, 10000);

/* On a phone the rail is one line: it opens where the page one is on stands. */
function scrollToCurrentPage() {
  const nav = document.querySelector(".rail nav");
  const here = nav && nav.querySelector("[aria-current]");
  if (here && nav.scrollWidth > nav.clientWidth) nav.scrollLeft += here.getBoundingClientRect().left - nav.getBoundingClientRect().left - 24;
}

/* A form that came back: the first field to mend has the focus, unless the page says what has. */
function focusFirstProblem() {
  const wrong = document.querySelector("main form [aria-invalid=true]");
  if (wrong && wrong.offsetParent && document.activeElement === document.body && !document.querySelector("main [autofocus]")) wrong.focus();
}

document.addEventListener("DOMContentLoaded", () => {
  applyTheme(readTheme());
  scrollToCurrentPage();
  focusFirstProblem();
  for (const tab of document.querySelectorAll(".tabs > [aria-current]")) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 48; // in sight on a phone
  for (const item of document.querySelectorAll(".toast[data-toast]:not(.error)")) setTimeout(() => item.remove(), 8000);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("lab:theme")));
