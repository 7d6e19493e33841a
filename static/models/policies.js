/* The retention rules are previewed by one form and saved by another: saving sends what stands in the first. */
const rules = document.getElementById("rules");
const save = document.getElementById("save-rules");
document.querySelector("[data-save-rules]")?.addEventListener("click", () => {
  for (const old of save.querySelectorAll("[data-copied]")) old.remove();
  for (const [name, value] of new FormData(rules)) {
    const input = Object.assign(document.createElement("input"), { type: "hidden", name, value });
    input.dataset.copied = "";
    save.append(input);
  }
});
