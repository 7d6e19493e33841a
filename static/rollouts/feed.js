/* The rollouts tab: the feed of the chosen step, following, the pill for what came meanwhile, finding, and the token view over the whole feed. */
import { announce, bindKey, showToast } from "../base/page.js";
import { findPendingAddress, showPart } from "../base/parts.js";
import { liveRun } from "../run/live.js";
import { stepBar } from "../run/steps.js";
import { walkCards } from "./card-keys.js";
import { readingList } from "./reading-list.js";
import { tokenCards } from "./tokens.js";

const root = document.getElementById("rollouts");

let view = findFeed().dataset.view;
let words = (new URLSearchParams(location.search).get("find") || "").slice(0, 200);
let fresh = 0; // rollouts that came since the feed was read

function findFeed() { return document.getElementById("feed"); }

/* The address of what is shown, or is about to be, with changes. */
function buildQuery(changes) {
  const coming = findPendingAddress("feed");
  const asked = new URLSearchParams(coming ? new URL(coming, location.href).search : findFeed().dataset.query);
  if (!coming && findFeed().dataset.following === "1") asked.delete("step");
  for (const name of ["after", "part"]) asked.delete(name);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null) asked.delete(name);
    else asked.set(name, value);
  }
  return keepView(asked);
}

/* What the page keeps whatever is shown: the token view and the words to find. */
function keepView(asked) {
  for (const [name, value] of [["tokens", view], ["find", words]]) {
    if (value) asked.set(name, value);
    else asked.delete(name);
  }
  return asked.size ? `?${asked}` : "";
}

/* Swaps the feed for another selection; the address follows, so that it can be shared and reloaded. */
async function showFeed(search, { push = true } = {}) {
  const asked = new URLSearchParams(search);
  search = leaveOut(search, "keep"); // that the layout is remembered is asked once, not by who gets the address
  asked.set("part", "feed");
  const address = `${root.dataset.url}?${asked}`;
  const shown = await showPart("feed", address);
  if (shown === null) updateStepBar(); // the slider goes back to what is shown
  if (shown !== address) return;
  if (push) history.replaceState(null, "", root.dataset.url + addView(search));
  fresh = 0;
  readingList.start();
  await showTokens();
  announce(`Step ${findFeed().dataset.step}, ${findFeed().dataset.total} rollouts`);
}

root.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-feed], a[data-token-view]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
    event.preventDefault();
    if (link.matches("[data-token-view]")) setView(link.dataset.tokenView);
    else showFeed(addView(link.getAttribute("href")));
  }
  if (event.target.closest("#feed-pill")) showFeed(buildQuery({ step: "" }));
  const all = event.target.closest("[data-show-all]");
  if (all) showAll(all);
  const tokens = event.target.closest("[data-all-tokens]");
  if (tokens) allTokens(tokens);
});

function leaveOut(search, name) {
  const query = new URLSearchParams(search);
  query.delete(name);
  return `?${query}`;
}

function addView(search) { return keepView(new URLSearchParams(search)); }

root.addEventListener("input", (event) => {
  if (event.target.id !== "feed-find") return;
  words = event.target.value;
  history.replaceState(null, "", root.dataset.url + buildQuery({}));
  filterCards();
});

/* What is looked through: of a card its text and its head, of a line what the line says. */
function findText(item) {
  return item.matches("[data-line]") ? item.textContent : `${item.querySelector("[data-plain]").textContent} ${item.querySelector(".rollout-head").textContent}`;
}

/* Of equal answers the head of one may say the words where the first one's does not. */
function showFound(fold) {
  const found = [...fold.querySelectorAll("[data-rollout], [data-line]")].some((item) => !item.hidden);
  fold.hidden = !found;
  if (found && fold.previousElementSibling.hidden) fold.open = true;
}

/* Hides the cards that do not say the words, in what is loaded of the step: in the prompt of their group or in themselves. */
function filterCards() {
  const box = document.getElementById("feed-find");
  if (!box) return;
  if (box.value !== words) box.value = words;
  const wanted = words.trim().toLowerCase();
  let [shown, all] = [0, 0];
  for (const group of root.querySelectorAll(".group")) {
    const here = Boolean(wanted) && group.querySelector(".prompt").textContent.toLowerCase().includes(wanted);
    let some = false;
    for (const article of group.querySelectorAll("[data-rollout], [data-line]")) {
      const text = () => findText(article).toLowerCase();
      article.hidden = Boolean(wanted) && !here && !text().includes(wanted);
      all += 1;
      if (!article.hidden) { shown += 1; some = true; }
    }
    group.hidden = !some;
    for (const fold of group.querySelectorAll("details.same")) showFound(fold);
  }
  document.getElementById("feed-found").textContent = wanted ? `${shown} of ${all}` : "";
}

root.addEventListener("change", (event) => {
  if (event.target.id === "feed-sort") showFeed(addView(event.target.value));
  if (event.target.id === "show-whitespace") tokenCards.showWhitespace(event.target.checked);
});

async function showAll(button) {
  const article = button.closest("[data-rollout]");
  button.disabled = true;
  const response = await fetch(`${article.dataset.tokens}?part=text`);
  if (!response.ok) { button.disabled = false; showToast("The text could not be loaded. Try again.", "error"); return; }
  const fragment = new DOMParser().parseFromString(await response.text(), "text/html"); // scripts of a parsed document never run
  article.querySelector("[data-plain]").replaceChildren(...document.adoptNode(fragment.body).childNodes);
  button.closest("[data-cut]").remove();
}

async function allTokens(button) {
  const article = button.closest("[data-rollout]");
  button.disabled = true;
  const response = await fetch(article.dataset.tokens);
  if (!response.ok) { button.disabled = false; return; }
  tokenCards.build(article, await response.json());
  colourTokens();
}

async function setView(name) {
  view = name;
  const step = findFeed().dataset.following === "1" ? "" : findFeed().dataset.step;
  history.replaceState(null, "", root.dataset.url + buildQuery(findPendingAddress("feed") ? {} : { step }));
  await showTokens();
}

/* Puts the chosen token view on every card, fetching the tokens of those that have none yet in one request. */
async function showTokens() {
  filterCards();
  updateStepBar();
  for (const link of root.querySelectorAll("[data-token-view]")) {
    if (link.dataset.tokenView === view) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const articles = [...root.querySelectorAll("[data-rollout]")];
  tokenCards.hideCard();
  if (view) {
    const missing = articles.filter((article) => !tokenCards.has(article));
    for (let start = 0; start < missing.length; start += 64) {
      const part = missing.slice(start, start + 64);
      const response = await fetch(`${root.dataset.tokensUrl}?ids=${part.map((article) => article.dataset.rollout).join(",")}`);
      if (!response.ok) { showToast("The tokens could not be loaded. Choose the view again to retry.", "error"); return; }
      const found = new Map((await response.json()).rollouts.map((one) => [String(one.id), one]));
      for (const article of part) tokenCards.build(article, found.get(article.dataset.rollout) || { error: "This rollout came without tokens." });
    }
  }
  for (const article of articles) {
    article.querySelector("[data-plain]").hidden = Boolean(view);
    const units = article.querySelector("[data-units]");
    units.hidden = !view;
    for (const name of tokenCards.views) units.classList.toggle(`view-${name}`, view === name);
    const cut = article.querySelector("[data-cut]");
    if (cut) cut.hidden = Boolean(view);
  }
  colourTokens();
}

function updateStepBar() {
  const { step, first, last, before, after, phase, steps, following } = findFeed().dataset;
  const known = (text) => (text === "" ? null : Number(text));
  stepBar.set({ phase, step: known(step), first: known(first), last: known(last), before: known(before), after: known(after),
    listed: steps ? steps.split(",").map(Number) : [], following: following === "1" });
  for (const link of root.querySelectorAll("a[data-open]")) link.search = view ? `?tokens=${view}` : "";
}

stepBar.on((step, phase) => {
  stepBar.set({ step: step ?? stepBar.state.step, phase, following: step === null }); // a key that is pressed twice goes two steps
  showFeed(buildQuery({ step: step === null ? "" : step, phase }));
});

function colourTokens() {
  const legend = document.getElementById("token-legend");
  if (!legend) return;
  if (!view) { legend.hidden = true; return; }
  tokenCards.legend(legend, view, tokenCards.colour([...root.querySelectorAll("[data-rollout]")], view));
}

document.addEventListener("htmx:afterSwap", (event) => { if (root.contains(event.target) && event.target.id !== "feed") showTokens(); });

/* Nothing moves under somebody who reads: the feed follows only while its top is in view and nothing in it is in use. */
function isUndisturbed() {
  const top = findFeed().getBoundingClientRect().top;
  const using = document.activeElement.closest("#stepper, #rollouts :is(.cards, .reading, select, #feed-find)");
  return top > -40 && !using && !root.querySelector(".group:hover, .reading-pane:hover, details[open]") && !String(getSelection());
}

let lastShow = 0;
function handleArrivals(count) {
  fresh += count;
  if (document.hidden) return;
  const follows = findFeed().dataset.following === "1" && (isUndisturbed() || !findFeed().dataset.step);
  if (follows && !findPendingAddress("feed") && Date.now() - lastShow > 900) {
    lastShow = Date.now();
    showFeed(buildQuery({ step: "" }), { push: false });
  } else showPill();
}

function showPill() {
  const pill = document.getElementById("feed-pill");
  if (!pill || !fresh) return;
  pill.hidden = false;
  const words = `${fresh} new`;
  if (pill.textContent !== words) pill.textContent = words;
}

setInterval(() => { if (fresh && !document.hidden && findFeed().dataset.following === "1") handleArrivals(0); }, 1000);
liveRun.on("delta", (delta) => { if (delta.rollouts && delta.rollouts.count) handleArrivals(delta.rollouts.count); });
liveRun.on("reset", () => (stepBar.state.following ? showFeed(buildQuery({ step: "" }), { push: false }) : showPill()));
walkCards(() => document.getElementById("groups"));
readingList.onShow(() => showTokens());
bindKey("o", "Next token overlay", () => {
  const views = [...root.querySelectorAll("[data-token-view]")].map((link) => link.dataset.tokenView);
  setView(views[(views.indexOf(view) + 1) % views.length]);
});
showTokens();
stepBar.look(); // held-out steps and marks on the slider's track
