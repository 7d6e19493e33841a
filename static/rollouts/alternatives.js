/* The most likely tokens at a position, for the hover card: the sampled one marked wherever it stands, and what all others have together. */

const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);

/* [{rank, id, text, share, sampled}] at a token, likeliest first, the sampled token last where it is not among them; and what is left of 1.
   ``rank`` 0: not known. null where nothing is known at the token. */
export function listAlternatives(data, index) {
  const { k, ids, logprobs, ranks, texts } = data.alternatives;
  if (!isKnown(logprobs[index * k])) return null;
  const rows = [];
  for (let place = 0; place < k; place += 1) {
    const at = index * k + place;
    if (isKnown(logprobs[at])) rows.push({ rank: place + 1, id: ids[at], text: texts[ids[at]] ?? null, share: Math.exp(logprobs[at]), sampled: ids[at] === data.ids[index] });
  }
  if (!rows.some((row) => row.sampled)) rows.push({ rank: ranks ? ranks[index] : 0, id: data.ids[index], text: null, share: isKnown(data.logprobs[index]) ? Math.exp(data.logprobs[index]) : null, sampled: true });
  const rest = 1 - rows.reduce((sum, row) => sum + (row.share ?? 0), 0);
  return { rows, rest: rows.every((row) => row.share !== null) ? Math.max(0, rest) : null };
}

/* Why the card lists none, in one line; empty where the run records none at all. */
export function explainMissing(data) { return data.alternatives ? "" : (data.alternatives_missing || "").replace(/^Alternatives /, ""); }

function makeRow(kind, ...cells) {
  const row = Object.assign(document.createElement("tr"), { className: kind });
  row.append(...cells.map(([tag, className, text]) => Object.assign(document.createElement(tag), { className, textContent: text })));
  return row;
}

/* A table for each token of the unit whose alternatives are known. */
export function makeAlternatives(data, unit, { visible, percent }) {
  if (!data.alternatives) return [];
  const tables = [];
  for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) {
    const found = listAlternatives(data, index);
    if (!found) continue;
    const table = Object.assign(document.createElement("table"), { className: "alternatives" });
    table.append(Object.assign(document.createElement("caption"), { textContent: unit[2] > 1 ? `Most likely tokens at position ${index}` : "Most likely tokens" }));
    for (const { rank, id, text, share, sampled } of found.rows) {
      const own = text === null && sampled && unit[2] === 1 ? unit[0] : text;
      const shown = own === null ? `id ${id}` : visible(own, true).replace(/\n/g, "") || "(empty)";
      table.append(makeRow(sampled ? "sampled" : "", ["th", "", rank ? `#${rank}` : "#?"], ["td", "text", shown], ["td", "", sampled ? "sampled" : ""], ["td", "num", share === null ? "n/a" : percent(share)]));
    }
    table.append(makeRow("rest", ["td", "", ""], ["td", "", "all other tokens"], ["td", "", ""], ["td", "num", found.rest === null ? "n/a" : percent(found.rest)]));
    tables.push(table);
  }
  return tables;
}
