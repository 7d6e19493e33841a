/* Bars with intervals: a track, the interval on it, the value, and a thin mark such as chance. Their places, and the shade of kappas, come from
   data attributes: the page has no inline styles. */
function placeBars() {
  for (const bar of document.querySelectorAll(".interval-bar:not([data-placed])")) {
    const [band, dot, mark] = bar.children;
    const { low, value, high } = bar.dataset;
    band.style.setProperty("left", `${100 * low}%`);
    band.style.setProperty("width", `${Math.max(1, 100 * (high - low))}%`);
    dot.style.setProperty("left", `${100 * value}%`);
    mark.hidden = bar.dataset.mark === "";
    if (bar.dataset.mark !== "") mark.style.setProperty("left", `${100 * bar.dataset.mark}%`);
    bar.dataset.placed = "";
  }
  for (const cell of document.querySelectorAll("[data-kappa]")) cell.style.setProperty("--shade", String(Math.round(34 * Math.max(0, Number(cell.dataset.kappa)))));
}
document.addEventListener("htmx:afterSwap", placeBars);
placeBars();
