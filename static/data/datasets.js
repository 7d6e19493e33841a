/* The pages of datasets: the address keeps the rule that is being looked at; filters answer when they are changed. */
import { refuseLargeFile } from "./file-size.js";

const rule = document.querySelector("[data-rule]");
if (rule) {
  rule.addEventListener("change", () => {
    const query = new URLSearchParams(new FormData(rule));
    for (const name of ["csrfmiddlewaretoken", "notes"]) query.delete(name);
    history.replaceState(history.state, "", `?${query}`);
  });
}
/* A slider beside a number: it moves over round values, its right end is no limit. The number is what is sent. */
for (const slider of document.querySelectorAll("[data-slides]")) {
  const number = document.getElementById(slider.dataset.slides);
  const stops = slider.dataset.stops.split(" ").map(Number);
  const place = () => {
    const above = number.value === "" ? -1 : stops.findIndex((stop) => stop >= Number(number.value));
    slider.value = above < 0 ? stops.length : above;
    slider.setAttribute("aria-valuetext", number.value === "" ? slider.dataset.none : `${number.value} steps`);
  };
  Object.assign(slider, { min: 0, max: stops.length, step: 1, hidden: false });
  place();
  number.addEventListener("input", place);
  slider.addEventListener("input", () => {
    number.value = stops[Number(slider.value)] ?? "";
    slider.setAttribute("aria-valuetext", number.value === "" ? slider.dataset.none : `${number.value} steps`);
  });
}
const mapping = document.querySelector("[data-mapping]");
if (mapping) {
  mapping.addEventListener("change", (event) => {
    if (event.target.matches("select")) mapping.requestSubmit(); // a text is sent when it is written
  });
}
refuseLargeFile();
const filters = document.querySelector("[data-filters]");
if (filters) {
  filters.addEventListener("change", (event) => {
    if (event.target.matches("select")) filters.requestSubmit();
  });
  filters.addEventListener("submit", () => {
    for (const input of filters.querySelectorAll("select, input")) if (!input.value) input.disabled = true; // a short address
  });
}
