/* Tasks: a file that is too large is refused before it is sent; the form warns before what was typed is lost. */
import { refuseLargeFile } from "./file-size.js";

refuseLargeFile();
let changed = false;
document.addEventListener("input", (event) => { if (event.target.closest("[data-task-form]")) changed = true; });
document.addEventListener("submit", () => { changed = false; });
window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
