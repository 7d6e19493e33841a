/* The inbox's list: j and k move, Enter opens, e marks read, a chosen kind filters at once. */
import { bindListKeys } from "../base/list-keys.js";
import { bindKey } from "../base/page.js";
import { showPart } from "../base/parts.js";

function clickInRow(selector) {
  const row = document.activeElement && document.activeElement.closest("[data-notice]");
  const target = row && row.querySelector(selector);
  if (target) target.click();
}

bindListKeys({
  items: () => [...document.querySelectorAll("[data-notice]")],
  next: ["j", "Next notice"],
  before: ["k", "Notice before"],
  findFirst: (all) => all[0],
  open: (row) => row.querySelector("a").click(),
});
bindKey("e", "Mark this one read", () => clickInRow("[data-mark]"));
document.addEventListener("change", (event) => { if (event.target.matches("[data-submits]")) event.target.form.requestSubmit(); });
/* A new notice: the list is fetched again, with its filter. */
document.addEventListener("lab:inbox", () => showPart("inbox-list", location.href, { select: "#inbox-list" }));
