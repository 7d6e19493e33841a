/* What the labelling page says besides the item: progress, no connection, answers that were not taken, nothing left. */
import { announce } from "../base/page.js";
import { make, page } from "./page.js";
import { store } from "./store.js";

const root = document.getElementById("labelling");
const find = (name) => root.querySelector(`[data-${name}]`);
const WORDS = { 1: "the first", 2: "the second", tie: "a tie", bad: "bad", good: "good", neutral: "neutral", skip: "skip" };

function progress(now) {
  if (!now) return;
  find("done").textContent = `${now.done}/${now.total}`;
  const bar = find("bar");
  bar.max = Math.max(1, now.total);
  bar.value = now.done;
  const conflicts = find("conflicts");
  conflicts.hidden = !now.conflicts;
  conflicts.textContent = now.conflicts === 1 ? "1 conflict" : `${now.conflicts} conflicts`;
  find("mine").textContent = `${now.mine} yours`;
}

let said = 0;
/* Why something cannot be done; it stands at the dock until the next change. */
export function say(words) {
  const line = find("say");
  line.textContent = words;
  clearTimeout(said);
  if (words) said = setTimeout(() => { line.textContent = ""; }, 12000);
}

/* The connection, and what waits for it. */
function connection(state, waiting) {
  const banner = find("offline");
  banner.hidden = state === "online" || (state === "offline" && navigator.onLine && !waiting);
  if (banner.hidden) return;
  const kept = waiting ? `${waiting === 1 ? "1 answer is" : `${waiting} answers are`} kept in this browser and will be sent` : "What you write is kept in this browser";
  const why = state === "out" ? "You are signed out. Sign in again in another tab; " : "The server is unreachable. ";
  find("offline-text").textContent = `${why}${state === "out" ? kept.charAt(0).toLowerCase() + kept.slice(1) : kept}${waiting ? (state === "out" ? " then." : " as soon as it can.") : "."}`;
  const link = find("sign-in");
  link.hidden = state !== "out";
}

// ---- answers that were not taken: kept until the person says what happens to them

const lost = () => store.kept("lost", []);

/* An answer whose lock is gone: {token, item, message, fix, answer, again: false where the lock cannot come back}. */
function lose(entry) {
  store.keep("lost", [...lost().filter((one) => one.token !== entry.token), entry]);
  draw();
  announce(`${entry.message} ${entry.fix}`);
}

function found(token) { store.keep("lost", lost().filter((one) => one.token !== token)); draw(); }

function written(answer) {
  const rows = [];
  const choice = answer.choice ? WORDS[answer.choice] || answer.choice : answer.tiers ? answer.tiers.map((tier) => tier.map((place) => place + 1).join(" = ")).join(" > ") : "";
  if (choice) rows.push(make("p", "small", `You had chosen: ${choice}.`));
  for (const [name, label] of [["rationale", "Why"], ["correction", "Corrected answer"], ["reason", "Reason"]]) {
    if (!answer[name]) continue;
    const copy = Object.assign(make("button", "button small", "Copy"), { type: "button" });
    copy.dataset.copy = answer[name];
    const box = Object.assign(make("textarea", "input"), { readOnly: true, rows: 2, value: answer[name] });
    box.setAttribute("aria-label", label);
    rows.push(make("div", "field", make("span", "label", label), box, make("div", "row", copy)));
  }
  return rows;
}

function draw() {
  const cards = lost().map((one) => {
    const again = Object.assign(make("button", "button primary", "Claim again"), { type: "button" });
    const leave = Object.assign(make("button", "button", "Next item"), { type: "button" });
    again.addEventListener("click", () => page.again(one, again));
    leave.addEventListener("click", () => { found(one.token); page.left(one); });
    const card = make("div", "card lost-card", make("h2", "", one.message), make("p", "muted", one.fix), ...written(one.answer || {}), make("div", "row", one.again === false ? null : again, leave));
    (one.again === false ? leave : again).dataset.first = "";
    card.setAttribute("role", "alert");
    card.dataset.lostItem = one.item;
    return card;
  });
  find("lost").replaceChildren(...cards);
}

// ---- nothing to show

/* kind: "loading", "done", "refused", "trouble"; null shows the item. */
function state(kind, message = "", fix = "") {
  find("dock").hidden = kind !== null;
  find("stage").hidden = kind !== null;
  for (const box of root.querySelectorAll("[data-state]")) box.hidden = box.dataset.state !== kind;
  if (kind === null) return;
  const box = root.querySelector(`[data-state="${kind}"]`);
  const [title, text] = [box.querySelector("[data-message]"), box.querySelector("[data-fix]")];
  if (title && message) title.textContent = message;
  if (text) text.textContent = fix;
  if (kind !== "loading") announce(`${message} ${fix}`);
}

store.watch(connection);
draw();
export const notices = { find, progress, lose, found, lost, state, connection };
