/* Rankings by mouse or pen: a card is dragged into a tier, between two tiers, or below all. The keys do the same. makeDraggable(board, tiers, drop)
   calls drop(place, act, words) with what the drop means for the tiers. A finger scrolls the page, so it taps a card and presses the buttons. */
import { make } from "./page.js";

const FROM = 6; // px that a press has to move
const EDGE = 10; // px at a tier's border that mean a tier of its own there

export function makeDraggable(board, tiers, drop) {
  let pressed = null; // {place, card, x, y, ghost: null until it moves}
  let wasDragged = false;
  const below = make("p", "drop-below muted small", "A tier of its own, below all");
  const tierOf = (element) => element?.closest?.(".tier, .drop-below");

  function target(x, y) {
    const found = tierOf(document.elementFromPoint(x, y));
    if (!found || !board.contains(found)) return null;
    if (found === below) return { element: found, how: "into", act: (place) => tiers.set(place, tiers.lowest() + 1) };
    if (!found.dataset.rank) return { element: found, how: "into", act: (place) => tiers.set(place, null) };
    const rank = Number(found.dataset.rank);
    const box = found.getBoundingClientRect();
    if (y < box.top + EDGE) return { element: found, how: "before", act: (place) => tiers.alone(place, rank) };
    if (y > box.bottom - EDGE) return { element: found, how: "after", act: (place) => tiers.alone(place, rank + 1) };
    return { element: found, how: "into", act: (place) => tiers.set(place, rank) };
  }

  function unmark() { for (const one of board.querySelectorAll("[data-drop]")) delete one.dataset.drop; }

  function begin() {
    const box = pressed.card.getBoundingClientRect();
    pressed.ghost = pressed.card.cloneNode(true);
    pressed.ghost.classList.add("rank-ghost");
    pressed.ghost.setAttribute("aria-hidden", "true");
    pressed.ghost.removeAttribute("tabindex");
    Object.assign(pressed.ghost.style, { width: `${box.width}px`, left: `${box.left - pressed.x}px`, top: `${box.top - pressed.y}px` });
    document.body.append(pressed.ghost);
    pressed.card.classList.add("dragged");
    board.append(below);
  }

  function end() {
    pressed.ghost?.remove();
    pressed.card.classList.remove("dragged");
    below.remove();
    unmark();
    pressed = null;
    for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener, true);
  }

  const listeners = {
    pointermove(event) {
      if (!pressed.ghost && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) < FROM) return;
      if (!pressed.ghost) begin();
      pressed.ghost.style.transform = `translate(${event.clientX}px, ${event.clientY}px)`;
      unmark();
      const over = target(event.clientX, event.clientY);
      if (over) over.element.dataset.drop = over.how;
    },
    pointerup(event) {
      const { place, ghost } = pressed;
      const over = ghost && target(event.clientX, event.clientY);
      wasDragged = Boolean(ghost);
      end();
      if (over) drop(place, over.act);
    },
    pointercancel: () => end(),
    keydown(event) {
      if (event.key !== "Escape") return;
      event.preventDefault();
      event.stopPropagation();
      end();
    },
  };

  board.addEventListener("pointerdown", (event) => {
    const card = event.target.closest(".rank-card");
    wasDragged = false;
    if (!card || pressed || event.button !== 0 || event.pointerType === "touch") return;
    pressed = { place: Number(card.dataset.place), card, x: event.clientX, y: event.clientY, ghost: null };
    for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener, true);
  });
  board.addEventListener("click", (event) => { if (wasDragged) { wasDragged = false; event.stopImmediatePropagation(); } });
}
