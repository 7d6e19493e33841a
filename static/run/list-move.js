/* Moving the marked runs of the list to a project: the marks are those of the comparison (runs_compare.js). */
import { listMarkedRuns } from "./list-marks.js";

const form = document.getElementById("move-form");

form.addEventListener("submit", () => {
  for (const old of form.querySelectorAll("input[name=id]")) old.remove();
  for (const number of listMarkedRuns()) {
    const input = document.createElement("input");
    Object.assign(input, { type: "hidden", name: "id", value: number });
    form.append(input);
  }
  form.elements.back.value = location.search || "?";
});
