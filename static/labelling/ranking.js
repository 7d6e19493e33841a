/* A whole group put in order by keyboard: answers as cards in tiers, the one in focus in full beside them. Only the pairs the order implies are
   written, none inside a tier. */
import { announce } from "../base/page.js";
import { diffTexts } from "./diff.js";
import { makeDraggable } from "./drag.js";
import { makeFields } from "./fields.js";
import { makeChoiceButton, makeKeyHint } from "./keys.js";
import { say } from "./notices.js";
import { make, page } from "./page.js";
import { answerPanels } from "./panels.js";
import { makeTiers } from "./tiers.js";

const CARD = 600; // characters of an answer on its card
const nameAnswer = (place) => String.fromCharCode(65 + place);
const nameAnswers = (places) => places.map(nameAnswer).join(places.length > 2 ? ", " : " and ");

function render(root, claim) {
  const tiers = makeTiers(claim.answers.length);
  let current = 0;
  let comparing = false;
  let inPage = false; // the next item is rendered while another one has the focus
  const fields = makeFields(claim, { better: () => claim.answers[tiers.order()[0]].text, strength: false });
  const board = make("div", "rank-board");
  const pane = make("div", "rank-pane");
  const note = make("p", "rank-note muted small");
  const count = make("p", "rank-count");
  const panels = claim.answers.map(() => null); // made when they are looked at
  const cards = claim.answers.map((one, place) => card(one, place));
  board.setAttribute("role", "group");
  board.setAttribute("aria-label", "Answers in tiers, best first");
  pane.append(note);
  pane.addEventListener("keydown", (event) => { if (event.key === "ArrowDown" || event.key === "ArrowUp") event.stopPropagation(); }); // they scroll there

  /* Others with the same text, word for word, always stand in the same tier: to order them would say nothing. */
  function twins(place) { return claim.answers.flatMap((one, other) => (other !== place && one.text === claim.answers[place].text ? [other] : [])); }

  function card(one, place) {
    const cut = one.text.length > CARD;
    const first = Math.min(place, ...twins(place));
    const size = Number.isInteger(one.tokens) ? `${one.tokens} tokens` : "";
    const text = make("p", "rank-text", one.text ? answerPanels.shownText(one.text.slice(0, CARD)) + (cut ? "…" : "") : make("span", "muted", "The answer is empty."));
    const made = make("article", "rank-card", make("header", "rank-head", make("strong", "", nameAnswer(place)), make("span", "muted small", first === place ? size : `same text as ${nameAnswer(first)}`)), text);
    made.tabIndex = -1;
    made.dataset.place = place;
    made.addEventListener("focusin", () => { if (current !== place) { current = place; mark(); } });
    return made;
  }

  // ---- drawing

  function row(title, places, at) {
    const list = make("div", "tier-cards", ...places.map((place) => cards[place]));
    const tier = make("section", at === null ? "tier unranked" : "tier", make("h3", "tier-name", ...title), list);
    tier.setAttribute("aria-label", title.map((part) => part.textContent ?? part).join(" "));
    if (at !== null) tier.dataset.rank = tiers.rank(places[0]);
    return tier;
  }

  function draw() {
    const all = tiers.read();
    const left = tiers.unranked();
    const rows = all.map((places, at) => row([make("span", "tier-rank", String(tiers.rank(places[0]))), at ? "" : " best"], places, at));
    if (left.length) rows.push(row([all.length ? "No tier yet" : "No tier yet: read them, then give each a number, 1 for the best"], left, null));
    board.replaceChildren(...rows);
    const order = all.map((places) => places.map(nameAnswer).join(" = ")).join(" > ");
    count.replaceChildren(make("span", "mono", order || "–"), make("strong", "", `gives ${tiers.pairs()} pair${tiers.pairs() === 1 ? "" : "s"}`), left.length ? make("span", "muted", `${left.length} without a tier`) : "", make("span", "rank-help muted", makeKeyHint("rank-next", "j"), " ", makeKeyHint("rank-before", "k"), " move, ", makeKeyHint("rank-1", "1"), "–", makeKeyHint("rank-9", "9"), " give a tier; or drag"));
    mark();
  }

  function mark() {
    cards.forEach((one, place) => {
      if (place === current) one.setAttribute("aria-current", "true");
      else one.removeAttribute("aria-current");
      one.tabIndex = place === current ? 0 : -1;
      one.setAttribute("aria-label", `Answer ${nameAnswer(place)}, ${where(place)}`);
    });
    if (!panels[current]) {
      panels[current] = answerPanels.answer(claim.answers[current], `Answer ${nameAnswer(current)}`);
      pane.append(panels[current].element);
    }
    panels.forEach((panel, place) => { if (panel) panel.element.hidden = place !== current; });
    compare();
  }

  function where(place) {
    const at = tiers.read().findIndex((tier) => tier.includes(place));
    return at < 0 ? "in no tier yet" : `in tier ${at + 1} of ${tiers.read().length}`;
  }

  /* The answer in focus against the best of the others that say something else. */
  function compare() {
    const target = tiers.order().find((place) => claim.answers[place].text !== claim.answers[current].text);
    const on = comparing && target !== undefined;
    pane.classList.toggle("comparing", on);
    panels[current].text(on ? diffTexts(claim.answers[target].text, claim.answers[current].text) : null, "both");
    note.replaceChildren(...(on ? [`From ${nameAnswer(target)} to ${nameAnswer(current)}: `, make("ins", "", "added"), " ", make("del", "", "removed")] : []));
    note.hidden = !on;
  }

  // ---- moving

  function focus(place) {
    current = place;
    mark();
    if (!inPage) return;
    cards[place].focus({ preventScroll: true });
    cards[place].scrollIntoView({ block: "nearest" });
  }

  function walk(by) {
    const all = tiers.order();
    focus(all[Math.min(all.length - 1, Math.max(0, all.indexOf(current) + by))]);
    announce(`Answer ${nameAnswer(current)}, ${where(current)}`);
  }

  function scroll(by) {
    const text = panels[current].element.querySelector(".answer-text");
    text.scrollTop += by * Math.max(80, text.clientHeight * 0.8);
  }

  function move(act, why) {
    const before = tiers.rank(current);
    const moved = current;
    if (!act(current)) { say(why); return; }
    for (const twin of twins(moved)) tiers.set(twin, tiers.rank(moved));
    if (!tiers.unranked().length) tiers.tighten(); // nothing is to come that the gaps were left for
    draw();
    const next = before === null ? [...tiers.unranked().filter((place) => place > moved), ...tiers.unranked()][0] : undefined;
    focus(next ?? moved); // reading goes on with what has no tier yet
    page.changed();
    announce(`Answer ${nameAnswers([moved, ...twins(moved)])} ${where(moved)}, gives ${tiers.pairs()} pairs`);
  }

  // id → key, other keys, words on the button, words in the list of keys, what it does
  const moves = {
    up: ["K", [","], "Up", "A tier up", () => move(tiers.up, `${nameAnswer(current)} is the best already.`)],
    down: ["J", ["."], "Down", "A tier down", () => move(tiers.down, `${nameAnswer(current)} is the last already.`)],
    tie: ["=", [], "Tie", "Tie with the one above", () => move(tiers.tie, `${nameAnswer(current)} is tied with the one above, or that has no tier.`)],
    untie: ["-", [], "Untie", "Untie, or a tier of its own below all", () => move(tiers.untie, `${nameAnswer(current)} is tied with none.`)],
    best: ["+", [], "Best", "Best of all", () => move(tiers.best, `${nameAnswer(current)} is the best already.`)],
    unrank: ["0", [], "No tier", "Out of its tier", () => move((place) => tiers.set(place, null), `${nameAnswer(current)} has no tier.`)],
  };
  const toggle = () => { comparing = !comparing; compare(); differ.setAttribute("aria-pressed", String(comparing)); announce(comparing ? "Differences are marked" : "Differences are not marked"); };
  const differ = makeChoiceButton("rank-diff", "w", "Differences", toggle);
  const acts = Object.entries(moves).map(([id, [key, , text, title, run]]) => { const made = Object.assign(makeChoiceButton(`rank-${id}`, key, text, run), { title }); made.removeAttribute("aria-pressed"); return made; });
  const actions = make("div", "choices rank-actions", ...acts, differ);
  actions.setAttribute("role", "group");
  actions.setAttribute("aria-label", "Move the answer in focus");
  makeDraggable(board, tiers, (place, act) => { current = place; move(act, `${nameAnswer(place)} stands there already.`); });
  board.addEventListener("click", (event) => { const chosen = event.target.closest(".rank-card"); if (chosen) focus(Number(chosen.dataset.place)); });

  root.append(answerPanels.prompt(claim), make("div", "rank", board, pane), fields.element);
  draw();
  return {
    choices: make("div", "rank-dock", count, actions),
    keys: () => [
      { id: "rank-next", key: "j", also: ["ArrowDown"], label: "Next answer", run: () => walk(1) },
      { id: "rank-before", key: "k", also: ["ArrowUp"], label: "Answer before", run: () => walk(-1) },
      ...Object.entries(moves).map(([id, [key, also, , label, run]]) => ({ id: `rank-${id}`, key, also, label, run })),
      ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map((rank) => ({ id: `rank-${rank}`, key: String(rank), label: `Into tier ${rank}`, run: () => move((place) => tiers.set(place, rank), `${nameAnswer(current)} is in tier ${rank} already.`) })),
      { id: "rank-scroll-on", key: "]", label: "Scroll the answer on", run: () => scroll(1) },
      { id: "rank-scroll-back", key: "[", label: "Scroll the answer back", run: () => scroll(-1) },
      { id: "rank-diff", key: "w", also: ["d"], label: "Word differences to the best", run: toggle },
      ...fields.keys().filter((one) => !one.id.startsWith("strength-")), // its keys are taken here, and a ranking has no strength
    ],
    read() {
      const left = tiers.unranked().length;
      return { ...(left ? { ranks: tiers.ranks() } : {}), tiers: tiers.read(), ...fields.read(), reason: "" };
    },
    fill(answer) {
      tiers.fill(answer.tiers, answer.ranks);
      fields.fill(answer);
      current = tiers.unranked()[0] ?? tiers.order()[0];
      draw();
    },
    ready() {
      const left = tiers.unranked();
      return left.length ? `Give every answer a tier: ${nameAnswers(left)} ${left.length === 1 ? "has" : "have"} none yet.` : fields.ready();
    },
    shown() { inPage = true; focus(current); },
    problem: fields.problem,
  };
}

page.kinds.ranking = { render };
