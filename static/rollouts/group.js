/* The group page: what the columns show, scrolling together, walking from member to member. */
import { bindListKeys } from "../base/list-keys.js";
import { announce, bindKey, showToast } from "../base/page.js";
import { findPendingAddress, showPart } from "../base/parts.js";
import { tokenCards } from "./tokens.js";

const root = document.getElementById("group");
let locked = new URLSearchParams(location.search).get("lock") !== "0";

function findColumns() { return document.getElementById("columns"); }
function listMembers() { return [...root.querySelectorAll(".member")]; }
function listOverlays() { return [...root.querySelectorAll("[data-columns]")].map((link) => link.dataset.view).filter((view) => view !== "diff"); } // plain first
function isOverlay(view) { return view !== "" && view !== "diff"; }

/* The address of what is shown, or is about to be, with changes; "" takes a part away. */
function buildQuery(changes) {
  const coming = findPendingAddress("columns");
  const asked = new URLSearchParams(coming ? new URL(coming, location.href).search : findColumns().dataset.query);
  asked.delete("part");
  asked.delete("lock");
  if (!locked) asked.set("lock", "0");
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") asked.delete(name);
    else asked.set(name, value);
  }
  return asked.size ? `?${asked}` : "";
}

/* A key that is pressed twice goes on from the view that is coming. */
function readView() { return new URLSearchParams(buildQuery({})).get("view") || ""; }

async function showView(changes) {
  const search = buildQuery(changes);
  const asked = new URLSearchParams(search);
  asked.set("part", "columns");
  const address = `${root.dataset.url}?${asked}`;
  const left = root.querySelector(".columns").scrollLeft;
  if (await showPart("columns", address) !== address) return;
  history.replaceState(null, "", root.dataset.url + search);
  root.querySelector(".columns").scrollLeft = left;
  await showTokens();
  announce(root.querySelector('[data-columns][aria-current="true"]')?.textContent || "");
}

root.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-columns]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  showView({ view: link.dataset.view });
});

root.addEventListener("change", (event) => {
  if (event.target.id === "target") showView({ with: event.target.value });
  if (event.target.id === "ignore-space") showView({ space: event.target.checked ? "ignore" : "" });
  if (event.target.id === "scroll-lock") {
    locked = event.target.checked;
    history.replaceState(null, "", root.dataset.url + buildQuery({}));
  }
  if (event.target.id === "show-whitespace") tokenCards.showWhitespace(event.target.checked);
});

/* Every column at the same share of its way: texts differ in length. */
let led = null;
root.addEventListener("scroll", (event) => {
  const leader = event.target;
  if (!locked || !leader.classList?.contains("column-text") || (led && led !== leader)) return;
  led = leader;
  const share = leader.scrollTop / Math.max(1, leader.scrollHeight - leader.clientHeight);
  for (const other of root.querySelectorAll(".column-text")) if (other !== leader) other.scrollTop = share * (other.scrollHeight - other.clientHeight);
  clearTimeout(led.timer);
  led.timer = setTimeout(() => { led = null; }, 120);
}, true);

root.addEventListener("focusin", (event) => {
  for (const member of listMembers()) member.classList.toggle("current", member.contains(event.target));
});

/* Token colours, from the tokens of all members on the page at once. */
async function showTokens() {
  document.getElementById("scroll-lock").checked = locked;
  const view = findColumns().dataset.view;
  if (!isOverlay(view)) return;
  findColumns().classList.add(`view-${view}`); // its hue
  const ids = listMembers().map((member) => member.dataset.rollout);
  const response = await fetch(`${root.dataset.tokensUrl}?ids=${ids.join(",")}`);
  if (findColumns().dataset.view !== view) return; // another view has come meanwhile
  if (!response.ok) { showToast("The tokens could not be loaded. Try again.", "error"); return; }
  const { rollouts } = await response.json();
  const found = new Map(rollouts.map((one) => [String(one.id), one]));
  const dressed = listMembers().filter((member) => found.has(member.dataset.rollout));
  for (const member of dressed) {
    tokenCards.build(member, found.get(member.dataset.rollout));
    member.querySelector("[data-plain]").hidden = true;
    member.querySelector("[data-units]").hidden = false;
  }
  tokenCards.legend(document.getElementById("legend"), view, tokenCards.colour(dressed, view));
}

bindListKeys({ items: listMembers, next: ["n", "Next member"], before: ["p", "Previous member"], open: (member) => member.querySelector("[data-open]").click() });
bindKey("w", "Word diff on or off", () => showView({ view: readView() === "diff" ? "" : "diff" }));
bindKey("o", "Next token overlay", () => showView({ view: listOverlays()[(listOverlays().indexOf(readView()) + 1) % listOverlays().length] }));
document.addEventListener("DOMContentLoaded", showTokens);
