/* Lists by keyboard: a key to the next item, one to the item before, Enter opens the one that has the focus. */
import { bindKey } from "./page.js";

export function focusItem(item) {
  item.focus({ preventScroll: true });
  item.scrollIntoView({ block: "nearest" });
}

/* ``items()`` are the elements in order, ``next`` and ``before`` say [key, label]. What differs between lists: ``findCurrent(all)`` is the item one stands
   on (the one with the focus), ``findFirst(all, by)`` where one begins without any (at the end one comes from), ``show(item)`` goes to an item (gives it
   the focus), ``passEnd(by, all)`` is called beyond the first and the last (which stay current), ``open(item)`` is what Enter does. */
export function bindListKeys({
  items, next, before, findCurrent = findFocused, findFirst = (all, by) => (by > 0 ? all[0] : all.at(-1)), show = focusItem, passEnd = null, open = null,
}) {
  function move(by) {
    const all = items();
    if (!all.length) return;
    const at = all.indexOf(findCurrent(all));
    if (at < 0) show(findFirst(all, by));
    else if (all[at + by] || !passEnd) show(all[Math.min(all.length - 1, Math.max(0, at + by))]);
    else passEnd(by, all);
  }

  bindKey(next[0], next[1], () => move(1));
  bindKey(before[0], before[1], () => move(-1));
  if (!open) return;
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !items().includes(event.target)) return;
    event.preventDefault();
    open(event.target);
  });
}

function findFocused(all) { return all.find((item) => item.contains(document.activeElement)); }
