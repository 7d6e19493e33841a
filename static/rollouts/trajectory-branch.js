/* "Branch here": the chosen token's panel, in a dialog that the server fills. */
import { bindKey, showToast } from "../base/page.js";
import { startBranchForm } from "../models/branch-form.js";
import { reader } from "./trajectory-reader.js";

const dialog = document.getElementById("branch-dialog");
const button = document.getElementById("branch-open");

async function openBranch() {
  const token = reader.state.token;
  if (token === null) { showToast("Choose a token first: click it, or press e for the most uncertain one.", "info", 4); return; }
  const address = `${button.dataset.url}?token=${token}&part=panel`;
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address);
    const text = await answer.text();
    if (!answer.ok) throw new Error(new DOMParser().parseFromString(text, "text/html").querySelector("h1 + p")?.textContent.trim() || `the server answered ${answer.status}`);
    const panel = new DOMParser().parseFromString(text, "text/html");
    dialog.replaceChildren(...panel.body.childNodes);
  } catch (error) {
    showToast(error.message, "error");
    return;
  } finally {
    button.removeAttribute("aria-busy");
  }
  const cancel = dialog.querySelector("[data-branch-cancel]");
  if (cancel) { cancel.hidden = false; cancel.addEventListener("click", () => dialog.close()); }
  dialog.showModal();
  startBranchForm(dialog);
}

if (button) {
  button.addEventListener("click", openBranch);
  bindKey("b", "Branch at the chosen token", openBranch);
  document.addEventListener("token:pinned", ({ detail }) => { button.setAttribute("aria-disabled", String(detail === null)); });
}
