/* The list of queues and one queue's page: rows by j and k, Enter opens the row that has the focus, filters without a press. */
import { bindKey } from "../base/page.js";

const rows = () => [...document.querySelectorAll("[data-rows] [data-row]")];

function move(by) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.contains(document.activeElement));
  const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by));
  all[next].focus();
  all[next].scrollIntoView({ block: "nearest" });
}

bindKey("j", "Next row", () => move(1));
bindKey("k", "Row before", () => move(-1));

document.addEventListener("keydown", (event) => {
  const row = event.target.closest && event.target.closest("[data-row]");
  if (event.key !== "Enter" || event.target !== row || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  window.location.assign(row.dataset.href);
});

document.addEventListener("DOMContentLoaded", () => {
  const filter = document.querySelector("[data-filter]");
  if (filter) filter.addEventListener("change", (event) => { if (event.target.matches("select")) filter.requestSubmit(); });
  const first = document.querySelector(".to-label [data-row]");
  if (first && document.activeElement === document.body) first.focus({ preventScroll: true });
});
