/* What was typed and not saved, in this browser: written a moment after each change, offered when the editor opens again, gone once it is saved. */

const PREFIX = "lab-report-";
const PAUSE = 500; // ms after the last key

export function readDraft(key) {
  try {
    const draft = JSON.parse(localStorage.getItem(PREFIX + key));
    return draft && typeof draft.text === "string" ? draft : null;
  } catch { return null; } // storage may be refused, or hold something else
}

export function forgetDraft(key) {
  try { localStorage.removeItem(PREFIX + key); } catch { /* there is none then */ }
}

function writeDraft(key, draft) {
  try { localStorage.setItem(PREFIX + key, JSON.stringify({ ...draft, at: Date.now() })); } catch { /* the warning before leaving is left */ }
}

let timer = 0;
export function keepDraft(key, draft) {
  clearTimeout(timer);
  timer = setTimeout(() => writeDraft(key, draft()), PAUSE);
}

export function stopKeeping() { clearTimeout(timer); }
