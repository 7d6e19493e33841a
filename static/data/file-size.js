/* Refuses a file that is too large before it is sent: the lab would refuse it half-way, without a page. */
export function refuseLargeFile() {
  const file = document.querySelector("input[type=file][data-most]");
  if (!file) return;
  const tooLarge = () => {
    const [chosen] = file.files;
    const most = Number(file.dataset.most);
    const over = Boolean(chosen) && chosen.size > most;
    document.getElementById("error-file").textContent = over ? `This file has ${Math.ceil(chosen.size / 1e6)} MB, at most ${most / 1e6} MB can be sent. Split it.` : "";
    file.setAttribute("aria-invalid", String(over));
    return over;
  };
  file.addEventListener("change", tooLarge);
  file.form.addEventListener("submit", (event) => { if (tooLarge()) event.preventDefault(); });
}
