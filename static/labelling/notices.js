/* What the labelling page says besides the item: progress, no connection, answers that were not taken, nothing left. */
import { announce } from "../base/page.js";
import { make, page } from "./page.js";
import { store } from "./store.js";

const root = document.getElementById("labelling");
const findPart = (name) => root.querySelector(`[data-${name}]`);
const WORDS = { 1: "the first", 2: "the second", tie: "a tie", bad: "bad", good: "good", neutral: "neutral", skip: "skip" };

function showProgress(now) {
  if (!now) return;
  findPart("done").textContent = `${now.done}/${now.total}`;
  const bar = findPart("bar");
  bar.max = Math.max(1, now.total);
  bar.value = now.done;
  const conflicts = findPart("conflicts");
  conflicts.hidden = !now.conflicts;
  conflicts.textContent = now.conflicts === 1 ? "1 conflict" : `${now.conflicts} conflicts`;
  findPart("mine").textContent = `${now.mine} yours`;
}

let said = 0;
/* Why something cannot be done; it stands at the dock until the next change. */
export function say(words) {
  const line = findPart("say");
  line.textContent = words;
  clearTimeout(said);
  if (words) said = setTimeout(() => { line.textContent = ""; }, 12000);
}

/* The connection, and what waits for it. */
function showConnection(state, waiting) {
  const banner = findPart("offline");
  banner.hidden = state === "online" || (state === "offline" && navigator.onLine && !waiting);
  if (banner.hidden) return;
  const kept = waiting ? `${waiting === 1 ? "1 answer is" : `${waiting} answers are`} kept in this browser and will be sent` : "What you write is kept in this browser";
  const why = state === "out" ? "You are signed out. Sign in again in another tab; " : "The server is unreachable. ";
  findPart("offline-text").textContent = `${why}${state === "out" ? kept.charAt(0).toLowerCase() + kept.slice(1) : kept}${waiting ? (state === "out" ? " then." : " as soon as it can.") : "."}`;
  const link = findPart("sign-in");
  link.hidden = state !== "out";
}

// ---- answers that were not taken: kept until the person says what happens to them

const listLostAnswers = () => store.kept("lost", []);

/* An answer whose lock is gone: {token, item, message, fix, answer, again: false where the lock cannot come back}. */
function keepLostAnswer(entry) {
  store.keep("lost", [...listLostAnswers().filter((one) => one.token !== entry.token), entry]);
  drawLostAnswers();
  announce(`${entry.message} ${entry.fix}`);
}

function dropLostAnswer(token) { store.keep("lost", listLostAnswers().filter((one) => one.token !== token)); drawLostAnswers(); }

function describeAnswer(answer) {
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

function drawLostAnswers() {
  const cards = listLostAnswers().map((one) => {
    const again = Object.assign(make("button", "button primary", "Claim again"), { type: "button" });
    const leave = Object.assign(make("button", "button", "Next item"), { type: "button" });
    again.addEventListener("click", () => page.again(one, again));
    leave.addEventListener("click", () => { dropLostAnswer(one.token); page.left(one); });
    const card = make("div", "card lost-card", make("h2", "", one.message), make("p", "muted", one.fix), ...describeAnswer(one.answer || {}), make("div", "row", one.again === false ? null : again, leave));
    (one.again === false ? leave : again).dataset.first = "";
    card.setAttribute("role", "alert");
    card.dataset.lostItem = one.item;
    return card;
  });
  findPart("lost").replaceChildren(...cards);
}

// ---- nothing to show

/* kind: "loading", "done", "refused", "trouble"; null shows the item. */
function showState(kind, message = "", fix = "") {
  findPart("dock").hidden = kind !== null;
  findPart("stage").hidden = kind !== null;
  for (const box of root.querySelectorAll("[data-state]")) box.hidden = box.dataset.state !== kind;
  if (kind === null) return;
  const box = root.querySelector(`[data-state="${kind}"]`);
  const [title, text] = [box.querySelector("[data-message]"), box.querySelector("[data-fix]")];
  if (title && message) title.textContent = message;
  if (text) text.textContent = fix;
  if (kind !== "loading") announce(`${message} ${fix}`);
}

store.watch(showConnection);
drawLostAnswers();
export const notices = { find: findPart, progress: showProgress, lose: keepLostAnswer, found: dropLostAnswer, lost: listLostAnswers, state: showState, connection: showConnection };
