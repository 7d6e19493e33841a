/* Saving a chart of a comparison: its lines as CSV, or as a picture with a legend. */
import { escapeMarkup, makeElement, readStyle } from "../charts/elements.js";


/* A text cell that no spreadsheet takes for a formula. */
function escapeCell(text) {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/* A row for each place along x, a column for each line; a group has its mean, both ends of its interval and how many runs. */
function buildCsv(chart) {
  const columns = chart.drawn.flatMap((one) => {
    const { label } = one.strand;
    if (!one.mean) return [[label, one.x, one.y]];
    return [[`${label} mean`, one.x, one.y], [`${label} low`, one.x, one.mean.low], [`${label} high`, one.x, one.mean.high], [`${label} runs`, one.x, one.mean.n.map((n) => n || null)]];
  });
  const known = columns.map(([, xs, ys]) => new Map(xs.map((x, index) => [x, ys[index]]).filter(([, y]) => y !== null)));
  const places = [...new Set(known.flatMap((values) => [...values.keys()]))].sort((a, b) => a - b);
  const head = [chart.page.settings.x === "time" ? "minutes" : chart.page.settings.x, ...columns.map(([label]) => label)];
  return [head.map(escapeCell), ...places.map((x) => [x, ...known.map((values) => values.get(x) ?? "")])].map((row) => row.join(",")).join("\r\n");
}

function downloadFile(href, name) {
  const link = makeElement("a");
  link.href = href;
  link.download = name;
  link.click();
}

function nameFile(chart) { return `compare-${chart.chart.metric.replace(/[^\w.-]+/g, "-").slice(0, 80)}`; }

export function saveCsv(chart) {
  const address = URL.createObjectURL(new Blob([`\ufeff${buildCsv(chart)}\r\n`], { type: "text/csv" }));
  downloadFile(address, `${nameFile(chart)}.csv`);
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export async function savePng(chart) {
  const traces = [...chart.drawn.flatMap((one) => chart.band(one)), ...chart.drawn.flatMap((one) => chart.traces(one).map((trace, index, all) => ({ ...trace, name: escapeMarkup(one.strand.label), showlegend: index === all.length - 1 })))];
  const layout = { ...chart.layout(chart.range()), title: { text: escapeMarkup(chart.chart.title) }, margin: { l: 60, r: 40, t: 50, b: 50 }, paper_bgcolor: readStyle("--surface"), width: 1200, height: 600, showlegend: true };
  downloadFile(await Plotly.toImage({ data: traces, layout }, { format: "png", width: 1200, height: 600, scale: 2 }), `${nameFile(chart)}.png`);
}
