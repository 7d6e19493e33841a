/* The list of queues and one queue's page: rows by j and k, Enter opens the row that has the focus, filters without a press. */
import { bindListKeys } from "../base/list-keys.js";

bindListKeys({
  items: () => [...document.querySelectorAll("[data-rows] [data-row]")],
  next: ["j", "Next row"],
  before: ["k", "Row before"],
  open: (row) => location.assign(row.dataset.href),
});

document.addEventListener("DOMContentLoaded", () => {
  const filter = document.querySelector("[data-filter]");
  if (filter) filter.addEventListener("change", (event) => { if (event.target.matches("select")) filter.requestSubmit(); });
  const first = document.querySelector(".to-label [data-row]");
  if (first && document.activeElement === document.body) first.focus({ preventScroll: true });
});
