/* What changed between two texts, word by word: diffTexts(before, after) gives [{kind: "same" | "removed" | "added", text}], in each change what was
   removed first; same + removed joined are before, same + added after. Words by longest common subsequence; lines, then whole texts, where that
   would be slow. No HTML anywhere: makeDiffNodes gives nodes. */
const CELLS = 3_000_000; // of the table; two bytes each
const WORDS = /\s*(?:[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[\p{L}\p{N}\p{M}_]+|[^\s\p{L}\p{N}\p{M}_]|$)/gu;

const splitWords = (text) => text.match(WORDS).filter(Boolean);
const splitLines = (text) => text.match(/[^\n]*\n|[^\n]+$/g) || [];

export function diffTexts(before, after) {
  for (const cut of [splitWords, splitLines, (text) => (text ? [text] : [])]) {
    const spans = alignParts(cut(before), cut(after));
    if (spans) return spans;
  }
  return [];
}

/* null when the middle that differs is too large for this way of cutting. */
function alignParts(a, b) {
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const [rows, columns] = [a.length - head - tail, b.length - head - tail];
  if (rows * columns > CELLS || Math.min(rows, columns) > 65535) return null;
  const spans = [];
  const add = (kind, text) => { if (!text) return; const last = spans[spans.length - 1]; if (last?.kind === kind) last.text += text; else spans.push({ kind, text }); };
  add("same", a.slice(0, head).join(""));
  alignMiddle(a.slice(head, head + rows), b.slice(head, head + columns), add);
  add("same", a.slice(a.length - tail).join(""));
  return spans;
}

function alignMiddle(a, b, add) {
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width); // longest common part of a from row on and b from column on
  for (let row = a.length - 1; row >= 0; row -= 1) {
    for (let column = b.length - 1; column >= 0; column -= 1) {
      const at = row * width + column;
      table[at] = a[row] === b[column] ? table[at + width + 1] + 1 : Math.max(table[at + width], table[at + 1]);
    }
  }
  let [row, column, removed, added] = [0, 0, "", ""];
  const flush = () => { add("removed", removed); add("added", added); removed = ""; added = ""; };
  while (row < a.length || column < b.length) {
    if (row < a.length && column < b.length && a[row] === b[column]) { flush(); add("same", a[row]); row += 1; column += 1; }
    else if (column >= b.length || (row < a.length && table[(row + 1) * width + column] >= table[row * width + column + 1])) { removed += a[row]; row += 1; }
    else { added += b[column]; column += 1; }
  }
  flush();
}

/* Nodes of a diff: side "before" and "after" show one text with its own changes marked, "both" shows removed and added in one. */
export function makeDiffNodes(spans, side, write = (text) => text) {
  const left = { before: "added", after: "removed" }[side];
  return spans.filter((span) => span.kind !== left).map((span) => {
    if (span.kind === "same") return document.createTextNode(write(span.text));
    return Object.assign(document.createElement(span.kind === "added" ? "ins" : "del"), { textContent: write(span.text) });
  });
}
