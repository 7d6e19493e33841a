/* Tasks: a file that is too large is refused before it is sent; the form warns before what was typed is lost. */
const file = document.querySelector("input[type=file][data-most]");
if (file) {
  const tooLarge = () => {
    const [chosen] = file.files;
    const most = Number(file.dataset.most);
    const over = Boolean(chosen) && chosen.size > most;
    document.getElementById("error-file").textContent = over ? `This file has ${Math.ceil(chosen.size / 1e6)} MB, at most ${most / 1e6} MB can be sent. Split it.` : "";
    file.setAttribute("aria-invalid", String(over));
    return over;
  };
  file.addEventListener("change", tooLarge);
  file.form.addEventListener("submit", (event) => { if (tooLarge()) event.preventDefault(); }); // the lab would refuse it half-way, without a page
}
let changed = false;
document.addEventListener("input", (event) => { if (event.target.closest("[data-task-form]")) changed = true; });
document.addEventListener("submit", () => { changed = false; });
window.addEventListener("beforeunload", (event) => { if (changed) event.preventDefault(); });
