/* Skipping an item of the labelling page: with a reason, by one more key for the usual ones. */
import { frame } from "./frame.js";
import { notices, say } from "./notices.js";
import { page } from "./page.js";

const { queue } = page;
const dialog = document.getElementById("skip-dialog");
const box = dialog.querySelector("textarea");

frame.skip = () => {
  const entry = frame.current();
  if (!entry || entry.lost || notices.find("stage").hidden) return;
  if (entry.claim.judgement) { say("An answer cannot become a skip: choose, or leave it as it was."); return; }
  if (queue.skipping === "never") { say("This queue does not allow skipping: answer as well as you can."); return; }
  box.value = "";
  dialog.showModal();
  dialog.querySelector("[data-reason]").focus();
};

function sendSkip(reason) {
  dialog.close();
  const entry = frame.current();
  if (entry) frame.send(entry, { ...entry.item.read(), choice: "skip", reason });
}

dialog.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const writing = event.target === box;
  const quick = !writing && [...dialog.querySelectorAll("[data-reason]")].find((button) => button.dataset.reason === event.key);
  if (quick) { event.preventDefault(); sendSkip(quick.dataset.reasonText); }
  else if (writing && event.key === "Enter" && !event.shiftKey) { event.preventDefault(); sendOwnReason(); }
  else if (!writing && event.key === "r") { event.preventDefault(); box.focus(); }
});

function sendOwnReason() {
  if (box.value.trim()) sendSkip(box.value.trim());
  else box.focus();
}

dialog.addEventListener("click", (event) => {
  const quick = event.target.closest("[data-reason]");
  if (quick) sendSkip(quick.dataset.reasonText);
});
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter?.value === "cancel") dialog.close();
  else sendOwnReason();
});
