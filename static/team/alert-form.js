/* The form of an alert rule: only the fields of the chosen kind show. Hidden fields are ignored by the server for that kind. */
const form = document.querySelector("[data-rule-form]");
const kinds = form.querySelector("[data-kinds]").content;
const help = form.querySelector("[data-kind-help]");

function showFields() {
  const kind = form.elements.kind.value;
  const entry = [...kinds.children].find((one) => one.dataset.name === kind);
  help.textContent = entry ? entry.textContent : "";
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(kind);
  for (const part of form.querySelectorAll("[data-about]")) part.hidden = !part.dataset.about.split(" ").includes(entry ? entry.dataset.about : "");
}

form.elements.kind.addEventListener("change", showFields);
showFields();
