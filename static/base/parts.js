/* Parts of a page that are fetched anew. showPart(id, address) is the only way a script asks for one; what htmx asks for by itself, from links
   and forms, is watched here, because two answers for one element lose the second: it looks for the element that the first took away. */
const slots = new Map(); // by the id of the element
let pressed = null; // what the pointer is down on

function findSlot(id) {
  if (!slots.has(id)) slots.set(id, { id, source: null, next: null, now: null, other: null, work: null });
  return slots.get(id);
}

/* Shows the address in the element of this id. One fetch at a time: who asks meanwhile is next, the newest address alone, and with
   ``replaces`` what is under way is given up for it. Resolves for everybody who asked, once nothing is left to fetch, to the address that
   is shown then; to null where that failed (the person has been told) or where something else of the page has filled the element. */
export function showPart(id, address, { select = null, replaces = false } = {}) {
  const slot = findSlot(id);
  slot.next = { address, select };
  stopOtherFetch(slot);
  if (replaces && slot.now && slot.now.xhr) slot.now.xhr.abort();
  slot.work ??= fetchInTurn(slot);
  return slot.work;
}

async function fetchInTurn(slot) {
  await null; // the caller has kept this promise before it can end
  let shown = null;
  while (slot.next) {
    while (slot.other || isPressed(slot)) await new Promise((resolve) => { slot.wake = resolve; });
    if (!slot.next) { shown = null; break; } // what was waited for has filled the element
    slot.now = slot.next;
    slot.next = null;
    shown = await fetchPart(slot) ? slot.now.address : null;
    slot.now = null;
  }
  slot.work = null;
  return shown;
}

/* htmx queues by the element that asks and drops what waits there; each slot asks from an element of its own. */
async function fetchPart(slot) {
  slot.source ??= document.body.appendChild(Object.assign(document.createElement("span"), { hidden: true }));
  let good = false;
  const ended = (event) => { good = Boolean(event.detail.successful); };
  slot.source.addEventListener("htmx:afterRequest", ended);
  const { address, select } = slot.now;
  try {
    // What the caller does to the part next must not be undone by settling later.
    const asked = htmx.ajax("GET", address, { source: slot.source, target: `#${CSS.escape(slot.id)}`, select, swap: "outerHTML settle:0ms" });
    await Promise.race([asked.catch(() => null), slot.now.over]); // a swap that fails ends the request and never the promise
  } finally {
    slot.source.removeEventListener("htmx:afterRequest", ended);
  }
  return good;
}

const isWithin = (slot, element) => Boolean(element && document.getElementById(slot.id)?.contains(element));
const isPressed = (slot) => isWithin(slot, pressed);
function wakeSlot(slot) { if (slot.wake) slot.wake(); }

document.addEventListener("htmx:beforeRequest", ({ detail: { elt, target, xhr, requestConfig, pathInfo } }) => {
  if (!target.id) return;
  const slot = findSlot(target.id);
  const over = new Promise((resolve) => xhr.addEventListener("loadend", resolve));
  if (elt === slot.source) { Object.assign(slot.now, { xhr, over }); return; }
  stopOtherFetch(slot);
  if (slot.now && slot.now.xhr) requeueFetch(slot);
  const own = { xhr, verb: requestConfig.verb, address: pathInfo.finalRequestPath };
  slot.other = own;
  over.then(() => {
    if (slot.other !== own) return;
    slot.other = null;
    if (own.verb === "get" && xhr.status >= 200 && xhr.status < 300) slot.next = null;
    wakeSlot(slot);
  });
});

/* Stops what htmx fetches by itself, unless it is an act. */
function stopOtherFetch(slot) {
  if (slot.other && slot.other.verb === "get") slot.other.xhr.abort();
}

/* Stops the fetch for now; it is asked for again unless something newer is. */
function requeueFetch(slot) {
  slot.next ??= { address: slot.now.address, select: slot.now.select };
  slot.now.xhr.abort();
}

/* Nothing is taken away between the press on it and the click. */
document.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  pressed = event.target;
  for (const slot of slots.values()) if (isPressed(slot) && slot.now && slot.now.xhr) requeueFetch(slot);
}, true);
let dragging = false; // the browser ends the pointer where a drag begins: what is dragged is held until it is dropped
document.addEventListener("dragstart", () => { dragging = true; }, true);
document.addEventListener("dragend", () => { dragging = false; }, true);
for (const name of ["pointerup", "pointercancel", "contextmenu", "dragend"]) {
  document.addEventListener(name, () => setTimeout(() => { // after the click
    if (dragging) return;
    pressed = null;
    slots.forEach(wakeSlot);
  }), true);
}

/* Back and Forward to an address that htmx has pushed: the page comes whole. A link into the page is a popstate, too, and stops nothing. */
window.addEventListener("popstate", ({ state }) => {
  if (!state?.htmx) return;
  for (const slot of slots.values()) {
    slot.next = null;
    stopOtherFetch(slot);
    if (slot.now && slot.now.xhr) slot.now.xhr.abort();
  }
});

/* htmx gives the focus back to an element with an id; here to any that is the same to a person. What a person has unfolded in a part that
   comes again by itself stays unfolded, and a menu stays open in any part that a script asked for. */
const LIKE = "a[href], button, input, select, textarea, summary, [tabindex]";
const readFormAction = (element) => (element.form ? element.form.getAttribute("action") : "");
const describeElement = (element) => [element.localName, element.getAttribute("href"), element.name, element.value, readFormAction(element), element.textContent.trim()].join("\n");
const nameFold = (fold) => {
  const summary = fold.querySelector("summary");
  return `${fold.closest("[id]")?.id}\n${summary?.getAttribute("aria-label") ?? summary?.textContent.trim()}`;
};
let lost = null;
let unfolded = new Set();
document.addEventListener("htmx:beforeSwap", (event) => {
  const active = document.activeElement;
  const { requestConfig, target } = event.detail;
  const polls = requestConfig && requestConfig.elt === target && /\bevery\b/.test(target.getAttribute("hx-trigger") || "");
  if (polls && pressed && target.contains(pressed)) event.detail.shouldSwap = false; // the next answer comes by itself
  const kept = polls ? "details[open]" : requestConfig && requestConfig.elt === slots.get(target.id)?.source ? "details[data-menu][open]" : null;
  unfolded = new Set(kept ? [...target.querySelectorAll(kept)].map(nameFold) : []);
  lost = event.detail.shouldSwap && event.target.contains(active) && !active.id && active.matches(LIKE) ? describeElement(active) : null;
});
document.addEventListener("htmx:afterSwap", (event) => {
  for (const fold of unfolded.size ? event.target.querySelectorAll("details") : []) if (unfolded.has(nameFold(fold))) fold.open = true;
  if (lost === null || document.activeElement !== document.body) return;
  const again = [...event.target.querySelectorAll(LIKE)].find((element) => describeElement(element) === lost);
  if (again) { again.focus({ preventScroll: true }); lost = null; }
});

/* The address that an element will show: what is asked for it now, or null. */
export function findPendingAddress(id) {
  const slot = findSlot(id);
  const theirs = slot.other && slot.other.verb === "get" ? slot.other : null;
  return (slot.next || theirs || slot.now)?.address ?? null;
}
