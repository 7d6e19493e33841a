/* Boxes of text that is longer than they are: the keyboard reaches those that scroll, as the pointer does. Not every browser sees to it. */
const BOXES = ".completion, .column-text, .group-prompt, .prompt-card, .message-text";

function reachScrollBoxes(inside) {
  for (const box of inside.querySelectorAll(BOXES)) {
    if (!box.hasAttribute("tabindex") && box.scrollHeight > box.clientHeight + 1 && getComputedStyle(box).overflowY === "auto") box.tabIndex = 0;
  }
}

reachScrollBoxes(document);
document.addEventListener("htmx:load", (event) => reachScrollBoxes(event.target));
