/* Ctrl+K (Cmd+K): every page of the rail and its menu, what this page can do, and searches, found by a few letters. */
const dialog = document.getElementById("palette");
const input = dialog.querySelector("input");
const list = dialog.querySelector("[role=listbox]");
const pages = dialog.querySelector("template").content;
let found = [];
let chosen = 0;

/* What an element says to a reader: badges and icons left out. */
function readWords(element) {
  const copy = element.cloneNode(true);
  for (const part of copy.querySelectorAll(".badge, .kbd, .muted, svg")) part.remove();
  return copy.textContent.replace(/\s+/g, " ").trim();
}

function makeEntry(element, kind) {
  return { words: readWords(element), kind, open: () => location.assign(element.getAttribute("href")) };
}

function listEntries() {
  const rail = [...document.querySelectorAll(".rail nav a")].map((one) => makeEntry(one, "page"));
  const more = [...pages.querySelectorAll("a:not([data-finds])"), ...document.querySelectorAll(".rail-foot .menu-body > a")].map((one) => makeEntry(one, "page"));
  const teams = [...document.querySelectorAll(".switcher a:not([aria-current])")].map((one) => makeEntry(one, "team"));
  const tabs = [...document.querySelectorAll("main .tabs a:not([aria-current])")].map((one) => makeEntry(one, "this page"));
  const acts = [...document.querySelectorAll("main [data-key-label]")].filter((one) => one.offsetParent && !one.disabled)
    .map((one) => ({ words: one.dataset.keyLabel, kind: "this page", open: () => (one.matches("input, select, textarea") ? one.focus() : one.click()) }));
  const seen = new Set();
  return [...rail, ...acts, ...tabs, ...more, ...teams].filter((one) => one.words && !seen.has(one.words.toLowerCase()) && seen.add(one.words.toLowerCase()));
}

function listSearches(text) {
  return [...pages.querySelectorAll("[data-finds]")].map((one) => ({
    words: `Search ${one.textContent.toLowerCase()} for “${text}”`,
    kind: "search",
    open: () => { const url = new URL(one.getAttribute("href"), location.href); url.searchParams.set(one.dataset.finds, text); location.assign(url); },
  }));
}

/* Those that hold every word; what begins so comes first. */
function findEntries(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = listEntries().filter((one) => words.every((word) => one.words.toLowerCase().includes(word)));
  const first = (one) => (words.length && one.words.toLowerCase().startsWith(words[0]) ? 0 : 1);
  return [...hits.sort((one, other) => first(one) - first(other)), ...(words.length ? listSearches(text.trim()) : [])];
}

function chooseEntry(index) {
  chosen = Math.max(0, Math.min(index, found.length - 1));
  for (const [at, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(at === chosen));
  const item = list.children[chosen];
  if (item) { input.setAttribute("aria-activedescendant", item.id); item.scrollIntoView({ block: "nearest" }); } else input.removeAttribute("aria-activedescendant");
}

function showEntries() {
  found = findEntries(input.value);
  list.replaceChildren(...found.map((one, at) => {
    const item = Object.assign(document.createElement("li"), { id: `palette-${at}` });
    item.setAttribute("role", "option");
    item.append(Object.assign(document.createElement("span"), { textContent: one.words }), " ", Object.assign(document.createElement("small"), { className: "muted", textContent: one.kind }));
    return item;
  }));
  chooseEntry(0);
}

function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  input.value = "";
  dialog.showModal();
  showEntries();
  input.focus();
}

function openEntry(index) {
  const one = found[index];
  if (!one) return;
  dialog.close();
  one.open();
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.isComposing) return;
  event.preventDefault(); // the browser's own search bar
  if (dialog.open) dialog.close();
  else openPalette();
});
document.addEventListener("click", (event) => { if (event.target.closest("[data-palette]")) openPalette(); });
dialog.addEventListener("click", (event) => {
  const item = event.target.closest("[role=option]");
  if (item) openEntry([...list.children].indexOf(item));
  else if (event.target === dialog) dialog.close(); // beside it
});
input.addEventListener("input", showEntries);
input.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const moves = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: found.length - 1 };
  if (event.key === "Enter") { event.preventDefault(); openEntry(chosen); } else if (event.key in moves && (!input.value || !["Home", "End"].includes(event.key))) { event.preventDefault(); chooseEntry(moves[event.key]); }
});
