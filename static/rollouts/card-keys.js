/* Reading cards (or lines) of rollouts by keyboard: j and k through all of them, n and p within a group, Enter opens one. walkCards(findBox) takes a
   function that gives the element whose cards are read now, or nothing. */
import { bindListKeys, focusItem } from "../base/list-keys.js";
import { announce, bindKey } from "../base/page.js";

function listCards(inside) { return inside ? [...inside.querySelectorAll("[data-rollout], [data-line]")].filter((card) => card.checkVisibility()) : []; }

/* Where one stands: on the card with the focus, in a list also on the line that is shown beside it. */
function findCurrent(all) { return all.find((card) => card.contains(document.activeElement)) || all.find((card) => card.matches("[aria-current]")); }

/* The first card on the screen. */
function findVisible(all) { return all.find((card) => card.getBoundingClientRect().bottom > 80) || all[0]; }

export function walkCards(findBox) {
  /* Beyond the last card more are asked for, where there are more. */
  function passEnd(by, all) {
    const inside = findBox();
    const more = by > 0 && inside.querySelector(".feed-more a");
    if (!more) { announce(by > 0 ? "The last rollout" : "The first rollout"); return; }
    document.addEventListener("htmx:afterSettle", () => { const next = listCards(inside)[all.length]; if (next) focusItem(next); }, { once: true });
    more.click();
  }

  function moveInGroup(by) {
    const all = listCards(findBox());
    if (!all.length) return;
    const from = findCurrent(all);
    if (!from) { focusItem(findVisible(all)); return; }
    const group = listCards(from.closest(".group"));
    focusItem(group[(group.indexOf(from) + by + group.length) % group.length]);
  }

  bindListKeys({
    items: () => listCards(findBox()),
    next: ["j", "Next rollout (Enter opens it)"],
    before: ["k", "Rollout before"],
    findCurrent,
    findFirst: findVisible,
    passEnd,
    open: (card) => (card.matches("a") ? card : card.querySelector("a[data-open]"))?.click(),
  });
  bindKey("n", "Next of the group", () => moveInGroup(1));
  bindKey("p", "Previous of the group", () => moveInGroup(-1));
}
