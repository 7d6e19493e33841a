/* What a person typed before the scripts ran, or the browser put back when they came back to the page: htmx and our modules never heard of it, so
   a preview or a list would go on showing the answer to something else. It is typed once more, as soon as they listen.
   htmx keeps the value a field has when it starts ("changed" compares with it), so the field gets its old value for that moment. */
const TEXT = "textarea, input:not([type=hidden], [type=password], [type=checkbox], [type=radio], [type=file], [type=submit], [type=button])";
const typed = new Map(); // field → what was typed

function holdTypedText() { // before htmx starts
  for (const field of document.querySelectorAll(TEXT)) {
    if (field.value === field.defaultValue || field.type === "range" || field.type === "color") continue;
    typed.set(field, { value: field.value, selection: [field.selectionStart, field.selectionEnd] });
    field.value = field.defaultValue;
  }
}

function typeHeldText() { // after it
  for (const [field, { value, selection }] of typed) {
    field.value = value;
    if (selection[0] !== null && field === document.activeElement) field.setSelectionRange(...selection); // numbers have none
  }
  for (const field of typed.keys()) field.dispatchEvent(new Event("input", { bubbles: true }));
  typed.clear();
}

window.addEventListener("DOMContentLoaded", holdTypedText, { capture: true });
window.addEventListener("DOMContentLoaded", typeHeldText); // bubbled: behind all that starts on the document
