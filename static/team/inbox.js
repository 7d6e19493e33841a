/* The inbox's list: j and k move, Enter opens, e marks read, a chosen kind filters at once. */
import { bindKey } from "../base/page.js";
import { showPart } from "../base/parts.js";

const rows = () => [...document.querySelectorAll("[data-notice]")];

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement && document.activeElement.closest("[data-notice]"));
  const next = all[Math.max(0, Math.min(all.length - 1, at + by))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

function act(selector) {
  const row = document.activeElement && document.activeElement.closest("[data-notice]");
  const target = row && row.querySelector(selector);
  if (target) target.click();
}

bindKey("j", "Next notice", () => move(1));
bindKey("k", "Notice before", () => move(-1));
bindKey("e", "Mark this one read", () => act("[data-mark]"));
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("[data-notice]")) event.target.querySelector("a").click();
});
document.addEventListener("change", (event) => { if (event.target.matches("[data-submits]")) event.target.form.requestSubmit(); });
/* A new notice: the list is fetched again, with its filter. */
document.addEventListener("lab:inbox", () => showPart("inbox-list", location.href, { select: "#inbox-list" }));
