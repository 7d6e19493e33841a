/* The editor: preview while typing, Ctrl+S, a draft in this browser, a warning before unsaved text is left, and the Insert dialog. */
import { announce, showToast } from "../base/page.js";
import { formatDuration } from "../base/numbers.js";
import { ReportCharts } from "./charts.js";
import { forgetDraft, keepDraft, readDraft, stopKeeping } from "./draft.js";
import { openInsert } from "./insert.js";
import { colourRollouts } from "./rollouts.js";

const form = document.getElementById("report-editor");
const { title, text, base } = form.elements;
const preview = document.getElementById("preview");
const state = document.getElementById("save-state");
const charts = new ReportCharts(form.dataset.series);
const key = form.dataset.draft;
const PAUSE = 400; // ms after the last key
let saved = readFields();
let sending = false;

function readFields() { return JSON.stringify([...new FormData(form)].filter(([name]) => !["csrfmiddlewaretoken", "base"].includes(name))); }
function isDirty() { return readFields() !== saved; }

/* Preview: one request at a time, the newest text alone. */
let shown = text.value;
let asking = false;
let timer = 0;
async function showPreview() {
  if (asking || shown === text.value) return;
  asking = true;
  preview.setAttribute("aria-busy", "true");
  const sent = text.value;
  try {
    const body = new FormData();
    body.set("text", sent);
    body.set("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
    const answer = await fetch(form.dataset.preview, { method: "POST", body });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    preview.replaceChildren(...document.importNode(fresh.body, true).childNodes);
    mountBlocks();
    shown = sent;
    preview.classList.remove("stale");
  } catch {
    preview.classList.add("stale"); // the next key asks again
    shown = null;
  } finally {
    asking = false;
    preview.setAttribute("aria-busy", "false");
  }
  if (shown !== null && shown !== text.value) showPreview();
}

function mountBlocks() {
  charts.mount(preview);
  colourRollouts(preview);
}

function changed() {
  state.textContent = isDirty() ? "Unsaved changes" : "";
  keepDraft(key, () => ({ title: title.value, text: text.value, base: base.value }));
  clearTimeout(timer);
  timer = setTimeout(showPreview, PAUSE);
}

function showErrors(errors) {
  for (const name of ["title", "text", "project", "message"]) {
    const [input, place] = [form.elements[name], document.getElementById(`error-${name}`)];
    if (!place) continue;
    place.textContent = errors[name] || "";
    if (errors[name]) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  form.querySelector("[aria-invalid]")?.focus();
}

/* Saves and stays. A conflict is shown by the server's own page, with both texts. */
async function save() {
  if (sending) return;
  sending = true;
  state.textContent = "Saving…";
  const sent = readFields();
  try {
    const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { Accept: "application/json" } });
    if (answer.status === 409) { leave(); form.submit(); return; }
    const said = await answer.json();
    if (answer.status === 422) { showErrors(said.errors); state.textContent = "Not saved"; return; }
    if (!answer.ok) throw new Error(String(answer.status));
    stopKeeping();
    forgetDraft(key);
    if (said.edit !== location.pathname) { leave(); location.assign(said.edit); return; } // it was a new one
    base.value = said.number;
    saved = sent;
    showErrors({});
    state.textContent = isDirty() ? "Unsaved changes" : said.words;
    announce(said.words);
  } catch {
    state.textContent = "Not saved";
    showToast("The report could not be saved. Your text is kept in this browser; try again.", "error");
  } finally {
    sending = false;
  }
}

function leave() { saved = readFields(); }

form.addEventListener("input", changed);
form.addEventListener("change", changed);
form.addEventListener("submit", (event) => {
  if (event.submitter && !isDirty() && form.querySelector(".report-conflict") === null) { forgetDraft(key); leave(); return; } // nothing to save: on to the report
  event.preventDefault();
  save().then(() => { if (!isDirty() && event.submitter && state.textContent.startsWith("Saved")) location.assign(form.action.replace(/edit\/$/, "")); });
});
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "s" && !event.altKey) { event.preventDefault(); save(); }
});
window.addEventListener("beforeunload", (event) => { if (isDirty() && !sending) event.preventDefault(); });

/* A draft of an earlier visit. */
function offerDraft() {
  const draft = readDraft(key);
  if (!draft || (draft.text === text.value && draft.title === title.value)) return;
  const banner = document.getElementById("draft");
  const older = base.value !== "0" && draft.base !== base.value ? ` It began from version ${draft.base}; the newest is ${base.value}.` : "";
  banner.querySelector("[data-words]").textContent = `This browser has a draft from ${formatDuration((Date.now() - draft.at) / 1000)} ago that was not saved.${older}`;
  banner.hidden = false;
  banner.querySelector("[data-restore]").addEventListener("click", () => {
    title.value = draft.title;
    text.value = draft.text;
    if (draft.base) base.value = draft.base; // what was saved meanwhile is a conflict, not lost
    banner.hidden = true;
    changed();
    text.focus();
  });
  banner.querySelector("[data-discard]").addEventListener("click", () => { forgetDraft(key); banner.hidden = true; text.focus(); });
}

const insert = document.getElementById("insert-open");
insert.hidden = false;
insert.addEventListener("click", () => openInsert(form.dataset.choices, (block) => {
  const at = text.selectionEnd ?? text.value.length;
  const before = text.value.slice(0, at).replace(/\n*$/, "");
  const after = text.value.slice(at).replace(/^\n*/, "");
  text.value = `${before}${before ? "\n\n" : ""}${block}\n${after ? "\n" : ""}${after}`;
  const end = (before ? before.length + 2 : 0) + block.length + 1;
  text.setSelectionRange(end, end);
  text.focus();
  changed();
}));

mountBlocks();
if (form.querySelector(".report-conflict")) saved = ""; // what stands in the editor is not saved yet
else offerDraft();
