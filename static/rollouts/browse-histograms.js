/* The histograms over the table of rollouts: a click keeps one bin, a drag a stretch, arrow keys and Enter do the same without a pointer. */
import { findPendingAddress, showPart } from "../base/parts.js";

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

let drag = null;
const binAt = (event, svg) => {
  const bins = all(".bin", svg), box = svg.getBoundingClientRect();
  return bins[Math.max(0, Math.min(bins.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bins.length)))];
};

function paint() {
  const bins = all(".bin", drag.svg);
  const [low, high] = ends();
  bins.forEach((bin, at) => bin.classList.toggle("dragged", at >= low && at <= high));
  readout(drag.svg, bins[low], bins[high]);
}

function ends() {
  const bins = all(".bin", drag.svg);
  return [bins.indexOf(drag.from), bins.indexOf(drag.to)].sort((one, other) => one - other);
}

function readout(svg, first, last = first) {
  const label = svg.closest(".histogram").querySelector("[data-readout]");
  if (!label) return;
  label.textContent = !first ? "" : first === last ? $("title", first).textContent : `${short(first.dataset.lo)} to ${short(last.dataset.hi)}`;
}
const short = (text) => String(Number(Number(text).toPrecision(3)));

document.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest && event.target.closest(".histogram svg");
  if (!svg || event.button) return;
  event.preventDefault();
  drag = { svg, from: binAt(event, svg), to: binAt(event, svg) };
  svg.setPointerCapture(event.pointerId);
  paint();
});
document.addEventListener("pointermove", (event) => {
  const svg = event.target.closest && event.target.closest(".histogram svg");
  if (drag) { drag.to = binAt(event, drag.svg); paint(); } else if (svg) readout(svg, binAt(event, svg));
});
document.addEventListener("pointerout", (event) => {
  const svg = event.target.closest && event.target.closest(".histogram svg");
  if (svg && !drag && !svg.contains(event.relatedTarget)) readout(svg, null);
});
document.addEventListener("pointerup", () => {
  if (!drag) return;
  const bins = all(".bin", drag.svg), [low, high] = ends();
  keep(bins[low], bins[high]);
  for (const bin of bins) bin.classList.remove("dragged");
  drag = null;
});
document.addEventListener("pointercancel", () => { drag = null; });

function keep(first, last) {
  const field = first.closest("[data-histogram]").dataset.histogram;
  go(field, [`${field}:ge:${first.dataset.lo}`, `${field}:${last.dataset.last ? "le" : "lt"}:${last.dataset.hi}`]);
}

/* The address as it stands, or is about to, with other filters of one field. */
function go(field, filters) {
  const query = new URL(findPendingAddress("browser") ?? location.href, location.href).searchParams;
  const others = query.getAll("f").filter((one) => !one.startsWith(`${field}:`));
  for (const name of ["f", "after"]) query.delete(name);
  for (const one of [...others, ...filters]) query.append("f", one);
  showPart("browser", `${location.pathname}?${query}`, { replaces: true });
}

document.addEventListener("click", (event) => {
  const bin = event.target.closest(".histogram .bin");
  const clear = event.target.closest(".histogram [data-clear]");
  if (!bin && !clear) return;
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (clear) go(clear.closest("[data-histogram]").dataset.histogram, []);
  else if (event.detail === 0) keep(bin, bin);  // Enter; a pointer's click was dealt with when it was let go
});
document.addEventListener("keydown", (event) => {
  const bin = event.target.closest && event.target.closest(".histogram .bin");
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!bin || !by) return;
  event.preventDefault();
  const bins = all(".bin", bin.closest("svg"));
  const next = bins[bins.indexOf(bin) + by];
  if (!next) return;
  bin.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
  readout(bin.closest("svg"), next);
});
