/* The summary by groups: over the runs of each group the mean of every figure, with half the 95 % interval where there are two or more. */
"use strict";
(function () {
  const { element } = lab;
  const FIGURES = [["final", "Held-out reward"], ["highest", "Best"], ["accuracy", "Held-out accuracy"], ["reward", "Reward"], ["entropy", "Entropy"]];

  lab.groupSummary = function groupSummary(strands, runs, quantiles) {
    const table = element("table", "table summary-table");
    const head = element("tr");
    for (const [place, word] of ["Group", "Runs", ...FIGURES.map(([, label]) => label)].entries()) head.append(Object.assign(element("th", place ? "num" : "", word), { scope: "col" }));
    table.append(element("caption", "visually-hidden", "Summary by groups"), element("thead"), element("tbody"));
    table.tHead.append(head);
    for (const strand of strands) {
      const members = runs.filter((run) => strand.members.includes(run.number));
      const row = element("tr");
      const name = Object.assign(element("th"), { scope: "row" });
      name.append(lab.swatch(strand), " ", element("bdi", "", strand.label));
      row.append(name, element("td", "num", String(members.length)), ...FIGURES.map(([key]) => figure(members.map((run) => run.figures[key]).filter((value) => value !== null), quantiles)));
      table.tBodies[0].append(row);
    }
    return table;
  };

  function figure(values, quantiles) {
    const cell = element("td", "num");
    if (!values.length) { cell.append(element("span", "muted", "–")); return cell; }
    const apart = lab.lines.half(values, quantiles);
    cell.append(lab.number(lab.lines.average(values)));
    if (apart !== null) cell.append(element("span", "muted", ` ± ${lab.number(apart)}`));
    return cell;
  }
})();
