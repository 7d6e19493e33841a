/* Ctrl+K (Cmd+K): every page of the rail and its menu, what this page can do, runs, recipes, methods, datasets and queues of the team, and searches,
   found by a few letters. What the page knows is there at once, what the server finds comes a moment later. */
const dialog = document.getElementById("palette");
const input = dialog.querySelector("input");
const list = dialog.querySelector("[role=listbox]");
const pages = dialog.querySelector("template").content;
let found = [];
let chosen = 0;
let moved = false; // somebody has chosen by key: the choice stays when more is found
let served = { text: "", found: [] };
let asking = null;
let pause = 0;

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
  const things = served.text === text.trim() ? served.found : [];
  const number = things.filter((one) => /^#?\d+$/.test(text.trim()) && one.words.startsWith(`#${text.trim().replace("#", "")} `)); // who types a number means the run
  const rest = things.filter((one) => !number.includes(one));
  return [...number, ...hits.sort((one, other) => first(one) - first(other)), ...rest, ...(words.length ? listSearches(text.trim()) : [])];
}

/* Asks the server once the typing pauses; an answer to what is no longer typed is dropped. */
function askServer() {
  clearTimeout(pause);
  if (asking) asking.abort();
  const text = input.value.trim();
  if (!text || served.text === text) return;
  pause = setTimeout(async () => {
    asking = new AbortController();
    try {
      const response = await fetch(`${dialog.dataset.url}?${new URLSearchParams({ q: text })}`, { signal: asking.signal, credentials: "same-origin" });
      if (!response.ok || response.redirected) return;
      const { found: things } = await response.json();
      served = { text, found: things.map(({ words, kind, url }) => ({ words, kind, open: () => location.assign(url) })) };
      if (things.length && input.value.trim() === text) showEntries();
    } catch { /* given up for a newer one, or the server is unreachable: pages and searches are there still */ }
  }, 120);
}

function chooseEntry(index) {
  chosen = Math.max(0, Math.min(index, found.length - 1));
  for (const [at, item] of [...list.children].entries()) item.setAttribute("aria-selected", String(at === chosen));
  const item = list.children[chosen];
  if (item) { input.setAttribute("aria-activedescendant", item.id); item.scrollIntoView({ block: "nearest" }); } else input.removeAttribute("aria-activedescendant");
}

function showEntries() {
  const before = moved && found[chosen] ? `${found[chosen].kind} ${found[chosen].words}` : "";
  found = findEntries(input.value);
  list.replaceChildren(...found.map((one, at) => {
    const item = Object.assign(document.createElement("li"), { id: `palette-${at}` });
    item.setAttribute("role", "option");
    item.append(Object.assign(document.createElement("span"), { textContent: one.words }), " ", Object.assign(document.createElement("small"), { className: "muted", textContent: one.kind }));
    return item;
  }));
  chooseEntry(before ? found.findIndex((one) => `${one.kind} ${one.words}` === before) : 0);
}

function openPalette() {
  if (document.querySelector("dialog[open]")) return;
  input.value = "";
  moved = false;
  served = { text: "", found: [] }; // a run may have another name since
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
input.addEventListener("input", () => { moved = false; showEntries(); askServer(); });
input.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  const moves = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: found.length - 1 };
  if (event.key === "Enter") { event.preventDefault(); openEntry(chosen); } else if (event.key in moves && (!input.value || !["Home", "End"].includes(event.key))) { event.preventDefault(); moved = true; chooseEntry(moves[event.key]); }
});
