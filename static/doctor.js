/* The doctor's panel comes again every minute while a run trains: what a person has unfolded stays unfolded. */
"use strict";
(function () {
  const panel = document.getElementById("doctor");
  if (!panel) return;
  let open = [];
  panel.addEventListener("htmx:beforeSwap", () => { open = [...panel.querySelectorAll("details[open]")].map((fold) => fold.closest(".finding").id); });
  panel.addEventListener("htmx:afterSwap", () => {
    for (const id of open) { const fold = document.getElementById(id)?.querySelector("details"); if (fold) fold.open = true; }
  });
})();
