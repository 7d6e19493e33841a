/* Parallel coordinates of a sweep: one axis a hyperparameter, one line a trial, coloured by its place among the scores. The chart library's bundle has
   none, so these are a few SVG elements. The table of trials says the same to who cannot see or point: a row lights its line and a line its row. */
import { readStyle } from "../charts/elements.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 260, TOP = 44, BOTTOM = 18, SIDE = 56, LEAST = 96, LETTER = 8; // pixels; LEAST: between two axes, LETTER: a letter of a name at most
const box = document.getElementById("parallel");
const plot = document.getElementById("parallel-plot");
let drawn = "";

function drawLines(again = false) {
  const source = document.getElementById("parallel-data");
  if (!source || (source.textContent === drawn && !again)) return;
  drawn = source.textContent;
  const chart = JSON.parse(drawn);
  box.hidden = chart.lines.length < 2;
  if (box.hidden) return;
  const stands = innerWidth < 640; // a phone: axes lie below each other
  plot.replaceChildren(stands ? drawStanding(chart) : drawLying(chart));
}

/* Value → share of the axis: numbers by their range, words and switches by their order. */
function makeScale(axis, values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (known.every((value) => typeof value === "number")) {
    const place = axis.log && known.every((value) => value > 0) ? Math.log : (value) => value;
    const low = Math.min(...known.map(place)), high = Math.max(...known.map(place));
    const share = (value) => (high > low ? (place(value) - low) / (high - low) : 0.5);
    return { share, ticks: [...new Set([Math.min(...known), Math.max(...known)])] };
  }
  const words = [...new Set(known.map(String))].sort();
  return { share: (value) => (words.length > 1 ? words.indexOf(String(value)) / (words.length - 1) : 0.5), ticks: words };
}

function formatTick(value) { return typeof value === "number" ? String(Number(value.toPrecision(3))) : String(value); }

function makeShape(name, attributes, text = "") {
  const shape = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  if (text) shape.textContent = text;
  return shape;
}

function makeSheet(width, height, chart) {
  return makeShape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `Parallel coordinates of ${chart.lines.length} trials; the table of trials has the same values` });
}

function drawLying(chart) {
  const width = Math.max(plot.clientWidth || box.clientWidth, SIDE * 2 + LEAST);
  const x = (index) => (chart.axes.length > 1 ? SIDE + (index * (width - 2 * SIDE)) / (chart.axes.length - 1) : width / 2);
  const y = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
  const sheet = makeSheet(width, HEIGHT, chart);
  const names = chart.axes.map((axis) => (axis.log ? `${axis.label} (log)` : axis.label));
  const close = chart.axes.length > 1 && x(1) - x(0) < LETTER * Math.max(...names.map((name) => name.length)); // names beside each other would touch
  const scales = chart.axes.map((axis, index) => makeScale(axis, chart.lines.map((line) => line.values[index])));
  drawTrials(sheet, chart, scales, (index, share) => [x(index), y(share)]);
  chart.axes.forEach((axis, index) => {
    sheet.append(makeShape("line", { class: "axis", x1: x(index), x2: x(index), y1: y(0), y2: y(1) }));
    sheet.append(makeShape("text", { class: "name", x: x(index), y: close && index % 2 ? 12 : 26, "text-anchor": "middle" }, names[index]));
    const [beside, anchor] = index ? [5, "start"] : [-5, "end"]; // no line runs left of the first axis
    for (const tick of scales[index].ticks) sheet.append(makeShape("text", { x: x(index) + beside, y: y(scales[index].share(tick)) + 4, "text-anchor": anchor }, formatTick(tick)));
  });
  return sheet;
}

function drawStanding(chart) {
  const width = Math.max(plot.clientWidth || box.clientWidth, 200), gap = 64, height = TOP + gap * (chart.axes.length - 1) + 28;
  const place = (index, share) => [12 + share * (width - 24), TOP + index * gap];
  const sheet = makeSheet(width, height, chart);
  const scales = chart.axes.map((axis, index) => makeScale(axis, chart.lines.map((line) => line.values[index])));
  drawTrials(sheet, chart, scales, place);
  chart.axes.forEach((axis, index) => {
    const [, y] = place(index, 0);
    sheet.append(makeShape("line", { class: "axis", x1: 12, x2: width - 12, y1: y, y2: y }));
    sheet.append(makeShape("text", { class: "name", x: 12, y: y - 8 }, axis.log ? `${axis.label} (log)` : axis.label));
    const { ticks, share } = scales[index];
    for (const tick of ticks) sheet.append(makeShape("text", { x: place(index, share(tick))[0], y: y + 14, "text-anchor": share(tick) < 0.3 ? "start" : share(tick) > 0.7 ? "end" : "middle" }, formatTick(tick)));
  });
  return sheet;
}

function drawTrials(sheet, chart, scales, place) {
  const last = chart.axes.length - 1;
  const order = chart.lines.toSorted((one, other) => (one.values[last] - other.values[last]) * (chart.maximize ? 1 : -1)); // the best on top
  order.forEach((line, rank) => {
    const points = line.values.map((value, index) => [value, index]).filter(([value]) => value !== null && value !== undefined).map(([value, index]) => place(index, scales[index].share(value)).join(","));
    const path = makeShape("polyline", { class: line.final ? "line" : "line open", points: points.join(" "), "data-trial": line.id });
    const share = order.length > 1 ? rank / (order.length - 1) : 1;
    path.style.stroke = `color-mix(in oklab, ${readStyle("--accent")} ${Math.round(15 + 85 * share)}%, ${readStyle("--border-strong")})`;
    path.style.strokeOpacity = String(0.45 + 0.55 * share);
    path.append(makeShape("title", {}, `${line.label}: ${formatTick(line.values[last])}`));
    path.addEventListener("click", () => { if (line.url) location.assign(line.url); });
    path.addEventListener("pointerenter", () => light(line.id, true));
    path.addEventListener("pointerleave", () => light(line.id, false));
    sheet.append(path);
  });
}

function light(id, on) {
  document.getElementById(id)?.classList.toggle("lit", on);
  plot.querySelector(`[data-trial="${id}"]`)?.classList.toggle("lit", on);
}

for (const [event, on] of [["pointerover", true], ["pointerout", false], ["focusin", true], ["focusout", false]]) {
  document.addEventListener(event, (happened) => { const row = happened.target instanceof Element && happened.target.closest(".trials tbody tr"); if (row) light(row.id, on); });
}
document.addEventListener("htmx:afterSettle", () => drawLines());
document.addEventListener("lab:theme", () => drawLines(true));
new ResizeObserver(() => drawLines(true)).observe(document.querySelector("main"));
drawLines();
