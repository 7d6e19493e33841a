/* The summary by groups: over the runs of each group the mean of every figure, with half the 95 % interval where there are two or more. */
import * as lines from "./lines.js";
import { makeElement } from "../charts/elements.js";
import { formatNumber } from "../base/numbers.js";
import { drawSwatch } from "./chart.js";

/* figures: [key, label, words] of each; the words say how a run's number was read. */
export function summarizeGroups(strands, { runs, quantiles, figures }) {
  const table = makeElement("table", "table summary-table");
  const head = makeElement("tr");
  for (const [place, [word, words]] of [["Group"], ["Runs"], ...figures.map(([, label, said]) => [label, `mean over runs: ${said}`])].entries()) {
    const cell = Object.assign(makeElement("th", place ? "num" : "", word), { scope: "col" });
    if (words) cell.append(makeElement("small", "", words));
    head.append(cell);
  }
  table.append(makeElement("caption", "visually-hidden", "Summary by groups"), makeElement("thead"), makeElement("tbody"));
  table.tHead.append(head);
  for (const strand of strands) {
    const members = runs.filter((run) => strand.members.includes(run.number));
    const row = makeElement("tr");
    const name = Object.assign(makeElement("th"), { scope: "row" });
    name.append(drawSwatch(strand), " ", makeElement("bdi", "", strand.label));
    row.append(name, makeElement("td", "num", String(members.length)), ...figures.map(([key]) => makeFigureCell(members.map((run) => run.figures[key]).filter((value) => value !== null), quantiles)));
    table.tBodies[0].append(row);
  }
  return table;
}

function makeFigureCell(values, quantiles) {
  const cell = makeElement("td", "num");
  if (!values.length) { cell.append(makeElement("span", "muted", "–")); return cell; }
  const apart = lines.computeHalfInterval(values, quantiles);
  cell.append(formatNumber(lines.computeMean(values)));
  if (apart !== null) cell.append(makeElement("span", "muted", ` ± ${formatNumber(apart)}`));
  return cell;
}
