/* Groups of the list of runs: each opens to its runs, which are fetched once. */
document.addEventListener("click", (event) => {
  const link = event.target.closest(".group-open");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const rows = document.getElementById(link.getAttribute("aria-controls"));
  const open = link.getAttribute("aria-expanded") !== "true";
  link.setAttribute("aria-expanded", String(open));
  rows.hidden = !open;
  if (open && !rows.childElementCount) htmx.trigger(link, "open");
});
