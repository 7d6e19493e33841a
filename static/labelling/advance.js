/* Auto-advance: the verdict submits by itself once everything required is answered. A setting of the person, kept in this browser as the views of the
   texts are; off, a verdict is marked and Enter submits. An order of answers is never complete by one key, so rankings have no such setting. */
import { announce, showToast } from "../base/page.js";
import { frame } from "./frame.js";
import { notices, say } from "./notices.js";
import { page } from "./page.js";
import { store } from "./store.js";

const YOUNG = 300; // ms after which an item can have been looked at: a key pressed twice must not answer the next one unread
const scope = `lab-labels-${page.person}-`;
const box = document.querySelector("[data-advance]");
let on = Boolean(box) && store.kept("advance", false, scope);

/* After a choice, or an answer to a question, by key or pointer. */
page.decided = () => {
  const entry = frame.current();
  if (!on || !entry || entry.lost || entry.claim.judgement) return; // an earlier answer is changed with care: Enter keeps it
  if ((entry.item.read().choice ?? null) === null) return;
  if (performance.now() - entry.since < YOUNG) { say("Marked only: this item has just come. Enter submits."); return; }
  const missing = entry.item.ready(); // takes the focus to what is missing
  if (missing) announce(missing);
  else frame.submit();
};

if (box) {
  box.checked = on;
  box.addEventListener("change", () => {
    on = box.checked;
    store.keep("advance", on, scope);
    showToast(on ? "The verdict submits once everything required is answered. Answer what is optional first." : "Enter submits, as the button does.", "info", 5);
    notices.find("stage").focus({ preventScroll: true });
  });
}
