/* The labelling page. Up to three claims are held: the item that is answered and the next ones, rendered already, so that an answer is followed by the next
   item at once; what was answered is sent behind it. page.js says how the kinds of items are shown and read. */
import { announce, showToast } from "../base/page.js";
import { refreshKeys, useKeys } from "./keys.js";
import { notices, say } from "./notices.js";
import { make, page } from "./page.js";
import { store } from "./store.js";

const root = document.getElementById("labelling");
const { urls } = page;
const { find } = notices;
const HOLD = 3; // claims that a look for work fills up to
const LOW = 2; // below which the page looks for work: every other answer
const RENEW = 20; // seconds between looks at the locks
const IDLE = 300; // seconds without a sign of the person after which locks run out
const held = []; // what is shown, then what comes next: {claim, root, item, shown, seconds, touched, until}
const sent = new Map(); // token → claim of answers that wait
const answered = new Set(); // tokens of answers that are stored; work that was asked for just before may still name them
let filling = false;
const LOOK = 5000; // ms between looks for new work when there is none
let again = false; // asked for work while it was being fetched
let retry = 0;
let used = performance.now();

const kind = page.kinds[page.queue.kind];
const getCurrentItem = () => held[0];
const readClock = () => performance.now() / 1000;

// ---- items

function prepareItem(claim) {
  const entry = { claim, root: make("div", `item item-${page.queue.kind}`), seconds: 0, shown: 0, touched: false, until: readClock() + claim.seconds_left };
  entry.item = kind.render(entry.root, claim, page);
  const draft = store.kept(`draft-${claim.token}`) || claim.draft || {};
  if (Object.keys(draft).length) entry.item.fill(draft);
  return entry;
}

function showItem(entry) {
  const before = find("stage").firstElementChild;
  notices.state(null);
  find("stage").replaceChildren(entry.root);
  find("choices").replaceChildren(...(entry.item.choices ? [entry.item.choices] : []));
  useKeys(entry.item.keys());
  refreshKeys();
  entry.shown = document.hidden ? 0 : readClock();
  entry.since = performance.now();
  root.dataset.item = entry.claim.item;
  find("returned").hidden = !entry.claim.judgement;
  find("returned-comment").textContent = entry.claim.judgement ? entry.claim.comment : "";
  for (const button of root.querySelectorAll('[data-dock] [data-do="skip"], [data-dock] [data-do="undo"]')) button.hidden = Boolean(entry.claim.judgement);
  find("stage").setAttribute("aria-label", `Item: ${(entry.claim.prompt.at(-1)?.[1] || "no prompt").slice(0, 150)}`);
  say("");
  entry.item.shown?.();
  if (before !== entry.root) window.scrollTo(0, 0);
  find("stage").focus({ preventScroll: true });
}

/* Seconds the item was in sight; the person never sees them. */
function measureSeconds(entry) {
  if (entry.shown) entry.seconds += readClock() - entry.shown;
  entry.shown = document.hidden ? 0 : readClock();
  return Math.round(entry.seconds * 10) / 10;
}

function showNext() {
  if (held.length) { showItem(getCurrentItem()); return; }
  root.dataset.item = "";
  notices.state("loading");
  if (!navigator.onLine || store.outbox().some((entry) => entry.tried)) notices.state("trouble", "The next item cannot be fetched yet.", "It appears by itself when the server can be reached.");
}

/* Asks for work until two items are here. */
async function fetchWork() {
  if (filling) { again = true; return; }
  filling = true;
  again = false;
  const waiting = new Set(store.outbox().map((entry) => entry.token));
  const { status, body } = await store.ask(urls.next, { hold: Math.min(10, HOLD + waiting.size) });
  filling = false;
  if (store.passing(status)) {
    notices.connection(status === 401 ? "out" : "offline", store.outbox().length);
    if (!held.length) notices.state("trouble", "The next item cannot be fetched yet.", "It appears by itself when the server can be reached.");
    clearTimeout(retry);
    retry = setTimeout(() => { if (held.length < LOW) fetchWork(); }, 4000);
    return;
  }
  if (!store.outbox().length) notices.connection("online", 0);
  if (status !== 200) { showRefusal(body); return; }
  notices.progress(body.progress);
  const old = acceptClaims(body.claims);
  if ((old || again) && held.length < LOW && !store.outbox().length) { fetchWork(); return; }
  if (held.length || store.outbox().length) return;
  root.dataset.item = "";
  if (!notices.lost().length || body.reason) showDone(body.reason || "Nothing is left to label here.", body.fix || "");
  clearTimeout(retry);
  retry = setTimeout(lookAgain, LOOK);
}

/* Says so once, however often it is asked. */
function showDone(message, fix) {
  const box = root.querySelector('[data-state="done"]');
  if (box.hidden || box.querySelector("[data-message]")?.textContent !== message) notices.state("done", message, fix);
}

/* A run that trains adds items while people wait for them. A page nobody looks at takes none. */
function lookAgain() {
  if (held.length || filling || root.querySelector('[data-state="done"]').hidden) return;
  if (document.hidden) retry = setTimeout(lookAgain, LOOK);
  else fetchWork();
}

/* How many of them are answered already. */
function acceptClaims(claims) {
  const gone = new Set([...store.outbox().map((entry) => entry.token), ...sent.keys(), ...answered]);
  for (const claim of claims) {
    const known = held.find((entry) => entry.claim.token === claim.token);
    if (known) { known.until = readClock() + claim.seconds_left; continue; }
    if (gone.has(claim.token)) continue;
    held.push(prepareItem(claim));
    if (held.length === 1) showItem(getCurrentItem());
  }
  return claims.filter((claim) => gone.has(claim.token)).length;
}

function showRefusal(body) {
  const entry = getCurrentItem();
  if (entry?.touched) saveDraft(entry);
  held.length = 0;
  root.dataset.item = "";
  notices.state("refused", body.message || "You cannot label here now.", body.fix || "Reload the page, or ask the person who runs the queue.");
}

// ---- answering

function submitAnswer() {
  const entry = getCurrentItem();
  if (!entry || entry.lost || find("stage").hidden) return;
  const missing = entry.item.ready();
  if (missing) { say(missing); return; }
  sendAnswer(entry, entry.item.read());
}

function sendAnswer(entry, answer) {
  const { claim } = entry;
  const about = claim.judgement ? { judgement: claim.judgement } : { token: claim.token };
  const body = { ...about, key: store.newKey(), seconds: measureSeconds(entry), answer };
  clearTimeout(entry.saving);
  sent.set(claim.token, claim);
  store.post({ key: body.key, token: claim.token, url: claim.judgement ? urls.revise : urls.submit, item: claim.item, body });
  store.keep(`draft-${claim.token}`, null);
  held.shift();
  if (claim.judgement) history.replaceState(null, "", location.pathname);
  showNext();
  store.flush().then(() => { if (held.length < LOW) fetchWork(); });
  if (held.length < LOW) fetchWork();
}

/* Of the outbox: the server has answered for good. */
store.settled = (entry, { status, body }) => {
  const { token, body: { answer } } = entry;
  const claim = sent.get(token);
  sent.delete(token);
  if (status === 200) {
    answered.add(token);
    notices.progress(body.progress);
    if (body.gold) showToast(body.gold.message, body.gold.right ? "success" : "warning", 8);
    else announce("Saved");
    return;
  }
  if (status === 409) { notices.lose({ token, item: entry.item, message: body.message, fix: body.fix || "", answer, again: !entry.body.judgement }); return; }
  store.keep(`draft-${token}`, answer);
  if (status === 422 && claim) { bringBack(claim, answer); showProblems(body.problems || []); return; }
  if (status === 422) { showToast(`An earlier answer was not accepted: ${(body.problems || []).map((one) => one.message).join(" ")}`, "error", 0); return; }
  showRefusal({ message: body.message || "Your last answer was not taken.", fix: `${body.fix || ""} What you wrote is kept in this browser.`.trim() });
};

function bringBack(claim, answer) {
  const entry = prepareItem(claim);
  entry.item.fill(answer);
  held.unshift(entry);
  showItem(entry);
  return entry;
}

function showProblems(list) {
  const apart = list.filter((one) => !getCurrentItem().item.problem?.(one.field, `${one.message} ${one.fix || ""}`.trim()));
  say(apart.length ? apart.map((one) => `${one.message} ${one.fix || ""}`.trim()).join(" ") : "The last answer was not accepted; see the marked field.");
}

async function undoAnswer() {
  if (getCurrentItem()?.claim.judgement) { say("Leave this answer first: it is an earlier one."); return; }
  const last = store.outbox().at(-1);
  if (last && !last.tried) {
    const claim = sent.get(last.token);
    store.take(last.key);
    sent.delete(last.token);
    if (claim) { bringBack(claim, last.body.answer); announce("Undone"); return; }
  }
  if (!(await store.flush())) { say("The last answer is on its way; it can be undone once the server can be reached."); return; }
  const { status, body } = await store.ask(urls.undo, {});
  if (status !== 200) { say(status === 0 ? "The server is unreachable; nothing was undone." : `${body.message || "Nothing to undo."} ${body.fix || ""}`.trim()); return; }
  bringBack(body.claim, store.kept(`draft-${body.claim.token}`) || body.claim.draft || {});
  announce("The last answer is back");
  fetchWork(); // for the progress
}

// ---- drafts

page.changed = () => {
  const entry = getCurrentItem();
  if (!entry) return;
  entry.touched = true;
  say("");
  store.keep(`draft-${entry.claim.token}`, entry.item.read());
  clearTimeout(entry.saving);
  entry.saving = setTimeout(() => saveDraft(entry), 1000);
};

async function saveDraft(entry, aloud = false) {
  clearTimeout(entry.saving);
  if (entry.claim.judgement) { if (aloud) say("Kept in this browser."); return; } // its claim is over; the draft stays here
  const draft = entry.item.read();
  const { status, body } = await store.ask(urls.draft, { token: entry.claim.token, draft });
  if (status === 409 && held.includes(entry)) { loseLock(entry, body); return; }
  if (status !== 200) { if (aloud) say("The server is unreachable; the draft is kept in this browser."); return; }
  if (JSON.stringify(entry.item.read()) === JSON.stringify(draft)) store.keep(`draft-${entry.claim.token}`, null);
  find("saved").textContent = "Draft saved";
  setTimeout(() => { find("saved").textContent = ""; }, 2500);
  if (aloud) announce("Draft saved");
}

// ---- locks

/* The lock of the item that is shown is gone: it stays in sight, what was written is kept, the person decides. */
function loseLock(entry, body) {
  if (entry.lost || !held.includes(entry)) return;
  entry.lost = true;
  entry.root.inert = true;
  entry.root.classList.add("lost");
  if (entry === getCurrentItem()) find("dock").hidden = true;
  store.keep(`draft-${entry.claim.token}`, entry.item.read());
  notices.lose({
    token: entry.claim.token, item: entry.claim.item, answer: entry.item.read(),
    message: body?.message || "Your lock on this item has expired.", fix: body?.fix || "Somebody else may have it now. What you wrote is kept below.",
  });
  if (entry === getCurrentItem()) find("lost").querySelector(`[data-lost-item="${entry.claim.item}"] [data-first]`)?.focus();
}

async function renewLocks() {
  const claims = held.filter((entry) => !entry.claim.judgement && !entry.lost);
  if (!claims.length || document.hidden || performance.now() - used > IDLE * 1000) return;
  const { status, body } = await store.ask(urls.renew, { tokens: claims.map((entry) => entry.claim.token) });
  if (status === 403 && body.message) { showRefusal(body); return; }
  if (status !== 200) return;
  for (const entry of claims) {
    const left = body.held[entry.claim.token];
    if (left !== undefined) { entry.until = readClock() + left; continue; }
    if (!held.includes(entry)) continue; // answered meanwhile
    if (entry === getCurrentItem()) { await saveDraft(entry); loseLock(entry); } // a draft that comes too late is told who has the item
    else { held.splice(held.indexOf(entry), 1); fetchWork(); }
  }
}

/* Of a lost answer: asks for the lock again. */
page.again = async (one, button) => {
  button.disabled = true;
  const { status, body } = await store.ask(urls.renew, { tokens: [one.token] });
  button.disabled = false;
  if (status === 0) { showToast("The server is unreachable. Try again in a moment.", "error"); return; }
  if (status !== 200 || body.held[one.token] === undefined) { showToast("This item is no longer available: others have answered or claimed it. What you wrote can still be copied.", "warning"); return; }
  const entry = held.find((other) => other.claim.token === one.token);
  if (entry) {
    Object.assign(entry, { lost: false, until: readClock() + body.held[one.token] });
    entry.root.inert = false;
    entry.root.classList.remove("lost");
    held.splice(held.indexOf(entry), 1);
    held.unshift(entry);
  } else {
    store.keep(`draft-${one.token}`, one.answer);
    const { body: more } = await store.ask(urls.next, { hold: Math.min(10, HOLD + store.outbox().length + 1) });
    acceptClaims((more.claims || []).filter((claim) => claim.token === one.token));
    const back = held.find((other) => other.claim.token === one.token);
    if (back) { held.splice(held.indexOf(back), 1); held.unshift(back); }
  }
  notices.found(one.token);
  if (held.length) showItem(getCurrentItem());
};

page.left = (one) => {
  store.keep(`draft-${one.token}`, null);
  const at = held.findIndex((entry) => entry.claim.token === one.token);
  if (at >= 0) held.splice(at, 1);
  if (at === 0 || !held.length) showNext();
  if (held.length < LOW) fetchWork();
};

page.roots = () => held.map((entry) => entry.root);

export const frame = { current: getCurrentItem, send: sendAnswer, submit: submitAnswer, undo: undoAnswer, save: () => getCurrentItem() && saveDraft(getCurrentItem(), true), renew: renewLocks, fill: fetchWork, prepare: prepareItem, show: showItem, held, watched: measureSeconds, touch: () => { used = performance.now(); } };

setInterval(renewLocks, RENEW * 1000);
// Windows of one person hold the same claims: only the last one gives back what it did not touch.
const windows = new BroadcastChannel(`lab-labels-${page.person}-${page.queue.id}`);
let alone = true;
windows.onmessage = ({ data }) => { alone = false; if (data === "hello") windows.postMessage("here"); };
windows.postMessage("hello");

window.addEventListener("pagehide", () => {
  const entry = getCurrentItem();
  if (entry?.touched && !entry.claim.judgement && !entry.lost) store.ask(urls.draft, { token: entry.claim.token, draft: entry.item.read() }, true);
  const spare = held.slice(1).filter((other) => !other.touched && !other.claim.judgement).map((other) => other.claim.token);
  if (spare.length && alone) store.ask(urls.release, { tokens: spare }, true);
});
