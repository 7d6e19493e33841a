/* What is selected, in places of the text and in tokens: spans show tokens as they are or made visible, distant chunks are one text node. */
import { findUnitAt, findUnitEnd } from "./trajectory-data.js";
import { completion } from "./trajectory-text.js";

const box = document.getElementById("text");

/* The place in the text where a boundary of a selection lies. */
function findPlace(node, offset) {
  if (node.nodeType === Node.TEXT_NODE) return readPlace(node.parentElement, offset, node);
  return offset < node.childNodes.length ? readPlace(node.childNodes[offset], 0) : readPlace(node, Infinity);
}

/* ``offset`` is 0 for the start of what the node shows and larger for something behind it; exact where a span shows its text as it is. */
function readPlace(node, offset, text = null) {
  const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
  const unitSpan = element.closest("[data-first]");
  if (unitSpan) {
    const unit = findUnit(unitSpan);
    if (text && unitSpan.textContent === unit[0]) return unit[4] + offset;
    return offset ? findUnitEnd(unit) : unit[4];
  }
  const inside = (element.closest(".turn") || box).querySelectorAll("[data-chunk]");
  const holder = element.closest("[data-chunk]") || (offset === Infinity ? inside[inside.length - 1] : inside[0]);
  const { data, chunks } = completion;
  const chunk = chunks[holder?.dataset.chunk];
  if (!chunk) return offset ? data.text.length : 0;
  const [from, to] = [data.units[chunk.start][4], findUnitEnd(data.units[chunk.end - 1])];
  return text && element === chunk.element ? Math.min(to, from + offset) : offset === Infinity ? to : from;
}

/* Text that no tokens account for says its place itself. */
function findUnit({ dataset }) {
  const { data } = completion;
  return data.units[dataset.at === undefined ? data.unitOf[dataset.first] : findUnitAt(data, Number(dataset.at))];
}

/* [from, to) of the selected text in the completion; null when nothing of it is selected, or something else as well. */
function readSelectedText() {
  const selection = getSelection();
  if (!completion.data || !selection.rangeCount || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  if (!box.contains(range.startContainer) || !box.contains(range.endContainer)) return null;
  const [from, to] = [findPlace(range.startContainer, range.startOffset), findPlace(range.endContainer, range.endOffset)];
  return to > from ? [from, to] : null;
}

/* What is selected, in tokens [start, end) with their text: in the text, else on the chart; null when nothing is. */
export function readSelection() {
  const { data } = completion;
  const places = readSelectedText();
  if (places && data.total) {
    const first = data.units[findUnitAt(data, places[0])];
    const last = data.units[findUnitAt(data, places[1] - 1)];
    return { start: first[1], end: last[1] + last[2], text: data.text.slice(first[4], findUnitEnd(last)) };
  }
  const chosen = completion.marks.find((one) => one.className === "chosen");
  return chosen ? { start: chosen.start, end: chosen.end, text: completion.text(chosen.start, chosen.end) } : null;
}

document.addEventListener("copy", (event) => {
  const places = readSelectedText();
  if (!places) return;
  event.clipboardData.setData("text/plain", completion.data.text.slice(...places));
  event.preventDefault();
});
