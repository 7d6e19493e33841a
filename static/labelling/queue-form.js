/* The form of a queue: shows the fields that matter, asks for the preview as it changes, keeps the address, edits the rubric. */
const form = document.querySelector("[data-queue-form]");
const field = (name) => form.elements[name];
const PAIRED = ["pair", "clearer"];
const UNKEPT = ["csrfmiddlewaretoken", "token", "guidelines"];
const started = new Map(); // what the form had when it was loaded without an address
let asking = 0;

const kind = () => (field("kind") && field("kind").value) || form.dataset.kind;

function arrangeFields() {
  const paired = PAIRED.includes(kind());
  const show = (selector, yes) => { for (const one of form.querySelectorAll(selector)) one.hidden = !yes; };
  show("[data-paired]", paired);
  for (const side of form.querySelectorAll("[data-how]")) side.hidden = !paired || field("how").value !== side.dataset.how;
  show("[data-gold]", kind() === "pair" || kind() === "single");
  show("[data-single]", kind() === "single");
  show("[data-people]", field("assigned_only").value === "on");
  if (field("strategy")) {
    for (const option of field("strategy").options) option.disabled = kind() === "single" && !["random", "entropy"].includes(option.value);
    if (field("strategy").selectedOptions[0].disabled) field("strategy").value = "random";
  }
  for (const name of ["gold", "gold_again"]) if (field(name) && !["pair", "single"].includes(kind())) field(name).value = "0";
  if (field("strategy")) show("[data-judge]", field("strategy").value === "disagreement");
  for (const question of form.querySelectorAll("[data-question]")) {
    question.querySelector("[data-question-choices]").hidden = question.querySelector("[data-question-kind]").value !== "choice";
    question.querySelector("[data-question-remove]").hidden = false;
  }
}

/* What differs from the usual goes into the address, so that a reload and a shared link give the same form. */
function remember() {
  if (!field("kind")) return;
  const query = new URLSearchParams(field("selection").value);
  for (const [name, value] of new FormData(form)) {
    if (UNKEPT.includes(name) || name === "selection" || name === "people" || name.startsWith("rubric_")) continue;
    if (value !== (started.get(name) ?? "") || new URLSearchParams(window.location.search).has(name)) query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(history.state, "", window.location.pathname + (text ? `?${text}` : ""));
}

function changed(event) {
  arrangeFields();
  if (event && event.target.closest("[data-question], .guidelines-edit")) return;
  clearTimeout(asking);
  asking = setTimeout(() => {
    remember();
    const preview = document.getElementById("preview");
    if (preview) htmx.trigger(preview, "preview");
  }, 400);
}

function addQuestion() {
  const list = form.querySelector("[data-questions]");
  list.append(form.querySelector("[data-question-template]").content.cloneNode(true));
  arrangeFields();
  list.lastElementChild.querySelector("[name=rubric_label]").focus();
}

for (const [name, value] of new FormData(form)) started.set(name, value);
form.addEventListener("input", changed);
form.addEventListener("click", (event) => {
  if (event.target.closest("[data-question-add]")) addQuestion();
  const remove = event.target.closest("[data-question-remove]");
  if (remove) remove.closest("[data-question]").remove();
});
form.addEventListener("submit", () => {
  const making = form.querySelector("[data-making]");
  if (!making) return;
  making.hidden = false;
  form.querySelector("[data-make]").setAttribute("aria-disabled", "true");
});
window.addEventListener("pageshow", () => { const make = form.querySelector("[data-make]"); if (make) make.removeAttribute("aria-disabled"); });
form.querySelector("[data-question-add]").hidden = false;
for (const run of ["a_run", "b_run"]) if (field(run)) field(run).setAttribute("list", "run-numbers");
arrangeFields();
const wrong = form.querySelector('[aria-invalid="true"]');
if (wrong) wrong.focus();
