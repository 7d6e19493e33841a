/* The editor of a reward function warns before what was typed is lost. */
let changed = false;
document.addEventListener("input", (event) => { if (event.target.closest("[data-reward-form]")) changed = true; });
document.addEventListener("submit", () => { changed = false; });
window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
