/* Plotly is loaded beside the page, which is read and used before it has come: what draws waits for this. */
const script = document.querySelector("script[data-plotly]");

export const plotlyLoaded = window.Plotly ? Promise.resolve() : new Promise((resolve, reject) => {
  script.addEventListener("load", () => resolve());
  script.addEventListener("error", () => reject(new Error("The chart library could not be loaded. Reload the page to try again.")));
});
