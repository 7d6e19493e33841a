/* Reading cards of rollouts by keyboard: j and k through all of them, n and p within a group, Enter opens one. walkCards(box) takes a
   function that gives the element whose cards are read now, or nothing. */
import { announce, bindKey } from "../base/page.js";

export function walkCards(box) {
  const cards = (inside) => [...inside.querySelectorAll("[data-rollout]")].filter((card) => card.offsetParent);
  const current = () => document.activeElement?.closest?.("[data-rollout]");

  function show(card) {
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }

  /* The first card on the screen, where none has the focus yet. */
  function begin(all) { show(all.find((card) => card.getBoundingClientRect().bottom > 80) || all[0]); }

  async function walk(by) {
    const inside = box();
    const all = inside ? cards(inside) : [];
    if (!all.length) return;
    const at = all.indexOf(current());
    if (at < 0) { begin(all); return; }
    if (all[at + by]) { show(all[at + by]); return; }
    const more = by > 0 && inside.querySelector(".feed-more a");
    if (!more) { announce(by > 0 ? "The last rollout" : "The first rollout"); return; }
    document.addEventListener("htmx:afterSettle", () => { const next = cards(inside)[at + 1]; if (next) show(next); }, { once: true });
    more.click();
  }

  function member(by) {
    const inside = box();
    const from = current();
    if (!inside) return;
    if (!from || !inside.contains(from)) { walk(by); return; }
    const group = cards(from.closest(".group"));
    show(group[(group.indexOf(from) + by + group.length) % group.length]);
  }

  bindKey("j", "Next rollout (Enter opens it)", () => walk(1));
  bindKey("k", "Rollout before", () => walk(-1));
  bindKey("n", "Next of the group", () => member(1));
  bindKey("p", "Previous of the group", () => member(-1));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.defaultPrevented || !event.target.matches?.("[data-rollout]")) return;
    event.target.querySelector("a[data-open]")?.click();
  });
}
