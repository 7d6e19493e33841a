/* Renaming a run in its header, and tags of the team that are put into the field by a click. */
document.addEventListener("htmx:afterSettle", () => {
  const input = document.querySelector("#run-head [data-renaming] input[name=name]");
  if (input && document.activeElement !== input) input.focus();
  if (input && !input.dataset.ready) { input.dataset.ready = "yes"; input.select(); }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing) return;
  const around = event.target === document.body ? document : event.target.closest("[data-renaming]"); // nothing has the focus while htmx swaps
  const cancel = around?.querySelector("[data-rename-cancel]");
  if (cancel) cancel.click();
});
/* The keyboard goes on where renaming began. */
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.requestConfig?.elt?.closest("[data-renaming]")) document.querySelector("#run-head [data-rename]")?.focus();
});

const tags = document.getElementById("about-tags");
const offered = document.querySelector("[data-offered-tags]");
if (offered) {
  offered.hidden = false;
  offered.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tag]");
    if (!button) return;
    const there = tags.value.split(",").map((word) => word.trim()).filter(Boolean);
    tags.value = [...there, button.dataset.tag].join(", ");
    button.remove();
    tags.focus();
  });
}
