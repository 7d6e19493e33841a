/* The forms of the annotations: sent without leaving the page, their text kept until it has arrived. */
import { showToast } from "../base/page.js";
import { anchorComment, askServer, forgetDraft, makeKey, root, showPanel, describeFailure } from "./annotations.js";
import { rememberUndo, buildUndo } from "./annotations-undo.js";

root.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-annotate]");
  if (!form) return;
  event.preventDefault();
  if (form.dataset.sending) return;
  form.dataset.sending = "1";
  const data = Object.fromEntries(new FormData(form));
  delete data.csrfmiddlewaretoken;
  if (event.submitter?.name) data[event.submitter.name] = event.submitter.value;
  const undoing = buildUndo(form, data);
  const answer = await askServer(form.action, data);
  delete form.dataset.sending;
  const box = form.querySelector("[data-error]");
  if (answer.status !== 200) {
    if (box) { box.textContent = describeFailure(answer); form.querySelector("[name=text], [name=name]")?.setAttribute("aria-invalid", "true"); }
    else showToast(describeFailure(answer), "error");
    return;
  }
  if (form.dataset.annotate !== "mark") emptyForm(form, box);
  showPanel(answer.body.panel);
  rememberUndo(undoing, answer.body);
});

/* Empties a form whose text has arrived; the next one gets a key of its own. */
function emptyForm(form, box) {
  if (box) box.textContent = "";
  form.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
  forgetDraft(form);
  if (form.dataset.annotate === "edit") { const text = form.elements.text; text.defaultValue = text.value; }
  else if (form.matches(".said-form")) form.reset();
  if (form.elements.key) form.elements.key.value = makeKey();
  if (form.dataset.annotate === "comment") anchorComment(form, null);
  const fold = form.closest("details");
  if (fold) fold.open = false;
}
