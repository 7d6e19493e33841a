/* The data of a chart as a table in the chart's own place: nothing around it moves. */
import { makeElement } from "./elements.js";

export const MOST_ROWS = 1000; // newest; the CSV has every point

/* rows: [x, cells] from the newest on, at most MOST_ROWS of them drawn. The place a person scrolled to stays. */
export function fillDataTable(box, { title, said = "", heads, rows }) {
  const table = makeElement("table", "table plain");
  const words = [said, rows.length > MOST_ROWS ? `newest ${MOST_ROWS} of ${rows.length}; the CSV has all` : ""].filter(Boolean).join(", ");
  table.append(makeElement("caption", words ? "muted small" : "visually-hidden", words || title), makeElement("thead"), makeElement("tbody"));
  const head = makeElement("tr");
  for (const word of heads) head.append(Object.assign(makeElement("th", "", word), { scope: "col" }));
  table.tHead.append(head);
  for (const [x, cells] of rows.slice(0, MOST_ROWS)) {
    const row = makeElement("tr");
    row.append(Object.assign(makeElement("th", "", x), { scope: "row" }), ...cells.map((words) => makeElement("td", "", words)));
    table.tBodies[0].append(row);
  }
  const { scrollTop, scrollLeft } = box;
  box.replaceChildren(table);
  Object.assign(box, { scrollTop, scrollLeft });
}

/* A box for it over the drawing, which the keyboard can scroll. */
export function makeTableBox(title) {
  const box = makeElement("div", "scroll chart-table");
  box.hidden = true;
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `${title}, data`);
  return box;
}
