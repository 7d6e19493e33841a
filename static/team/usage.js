/* Hours a day of a month: bars of GPU-hours and compute hours. The table below the chart says the same. */
import { readStyle } from "../charts/elements.js";
import { plotlyLoaded } from "../charts/plotly.js";

const plot = document.getElementById("usage-plot");
const data = JSON.parse(document.getElementById("usage-data").textContent);

function buildBars(name, values, color) {
  return { type: "bar", name, x: data.days, y: values, marker: { color: readStyle(color) }, hovertemplate: `%{x|%-d %b}: %{y:.2f} ${name}<extra></extra>` };
}

function drawChart() {
  const axis = { color: readStyle("--muted"), gridcolor: readStyle("--border"), zeroline: false, fixedrange: true, tickfont: { size: 11 } };
  const kinds = [["GPU-hours", data.gpu, "--series-1"], ["compute hours", data.compute, "--series-2"]].filter(([, values]) => values.some(Boolean));
  const layout = {
    height: 220, barmode: "stack", bargap: 0.25, margin: { l: 44, r: 8, t: 8, b: 30 }, hovermode: "closest", dragmode: false, showlegend: true,
    legend: { orientation: "h", x: 0, y: 1.14, font: { size: 11 } }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: readStyle("--font"), color: readStyle("--text"), size: 12 }, hoverlabel: { bgcolor: readStyle("--surface"), bordercolor: readStyle("--border-strong"), font: { color: readStyle("--text") } },
    xaxis: { ...axis, type: "date", tickformat: "%-d", dtick: innerWidth < 700 ? 4 * 864e5 : 864e5, showgrid: false, range: [findNoon(data.days[0], -1), findNoon(data.days.at(-1), 0)] },
    yaxis: { ...axis, automargin: true, rangemode: "tozero", nticks: 5, title: { text: "hours", font: { size: 11 }, standoff: 4 } },
  };
  Plotly.react(plot, kinds.map((kind) => buildBars(...kind)), layout, { displayModeBar: false, responsive: true, showTips: false });
}

/* Half a day before or after a day, so that its bar is whole. */
function findNoon(day, before) { return `${new Date(Date.parse(day) + (before ? -1 : 1) * 432e5).toISOString().slice(0, 16)}`; }

await plotlyLoaded;
document.addEventListener("lab:theme", drawChart);
drawChart();
