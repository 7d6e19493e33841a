/* The chosen measurement by position, under the toolbar: hovering and clicking lead to the token, dragging selects tokens, the text moves the cursor.
   One column of pixels shows the range of its tokens, so 200,000 of them are drawn as fast as forty. */
import { readStyle } from "../charts/elements.js";
import { tokenOverlays } from "./tokens.js";
import { reader } from "./trajectory-reader.js";
import { completion } from "./trajectory-text.js";

const HEIGHT = 64;
const DRAG_FROM = 5; // pixels of movement that make a click a selection

const canvas = document.getElementById("token-chart");
const words = document.getElementById("token-chart-words");
const pen = canvas.getContext("2d");
let view = "entropy";
let columns = null;
let [hovered, pinned, dragged, down] = [null, null, null, null];
let waiting = false;
let colours = null;

const getRollout = () => completion.data;

function useOverlay(overlay) {
  const rollout = getRollout();
  const offered = [overlay, "entropy", "logprob"].find((name) => name && name !== "mask" && tokenOverlays.values(rollout, name) && !(name in rollout.reasons));
  view = offered || "";
  canvas.parentElement.hidden = !view || !rollout.total;
  measureColumns();
}

/* Smallest and largest value of the policy's tokens under each column of pixels, and whether the environment wrote there. */
function measureColumns() {
  columns = null;
  const rollout = getRollout();
  if (!rollout || !view || canvas.parentElement.hidden) return;
  const wide = Math.max(1, Math.floor(canvas.clientWidth));
  const numbers = tokenOverlays.values(rollout, view);
  const bins = Math.min(wide, rollout.total);
  const [low, high, out] = [new Float32Array(bins).fill(NaN), new Float32Array(bins).fill(NaN), new Uint8Array(bins)];
  let [bottom, top] = [Infinity, -Infinity];
  for (let index = 0; index < rollout.total; index += 1) {
    const bin = Math.min(bins - 1, Math.floor((index * bins) / rollout.total));
    if (rollout.mask && !rollout.mask[index]) { out[bin] = 1; continue; }
    const value = numbers[index];
    if (tokenOverlays.missing(value)) continue;
    if (!(low[bin] <= value)) low[bin] = value;
    if (!(high[bin] >= value)) high[bin] = value;
    [bottom, top] = [Math.min(bottom, value), Math.max(top, value)];
  }
  const { signed } = tokenOverlays.all[view];
  const reach = Math.max(Math.abs(bottom), Math.abs(top)) || 1;
  columns = { wide, bins, low, high, out, bottom: signed ? -reach : Math.min(0, bottom), top: signed ? reach : Math.max(top, 1e-6), signed };
  canvas.width = wide * devicePixelRatio;
  canvas.height = HEIGHT * devicePixelRatio;
  canvas.setAttribute("aria-label", `${tokenOverlays.all[view].title} by position, up to ${tokenOverlays.all[view].write(columns.top)}`);
  scheduleDrawing();
  showWords();
}

function scheduleDrawing() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; paintChart(); });
}

function paintChart() {
  if (!columns) return;
  colours ||= { bar: readStyle("--series-1"), out: readStyle("--surface-2"), seen: readStyle("--border"), pin: readStyle("--accent"), text: readStyle("--text"), axis: readStyle("--border-strong") };
  const { wide, bins, low, high, out, bottom, top } = columns;
  const y = (value) => 3 + (1 - (value - bottom) / (top - bottom)) * (HEIGHT - 6);
  const step = wide / bins;
  pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  pen.clearRect(0, 0, wide, HEIGHT);
  pen.fillStyle = colours.out;
  for (let bin = 0; bin < bins; bin += 1) if (out[bin]) pen.fillRect(bin * step, 0, Math.max(1, step), HEIGHT);
  const seen = completion.inView();
  if (seen && seen[1] - seen[0] < getRollout().total) paintStretch(seen, colours.seen, 0.55);
  paintStretch(dragged, colours.pin, 0.28);
  pen.fillStyle = colours.bar;
  const zero = y(0);
  for (let bin = 0; bin < bins; bin += 1) {
    if (Number.isNaN(low[bin])) continue;
    const [from, to] = [Math.min(y(high[bin]), zero), Math.max(y(low[bin]), zero)];
    pen.fillRect(bin * step, from, Math.max(1, step - (step > 4 ? 1 : 0)), Math.max(1, to - from));
  }
  pen.fillStyle = colours.axis;
  pen.fillRect(0, zero, wide, 1);
  paintLine(pinned, colours.pin, 2);
  paintLine(hovered, colours.text, 1);
}

const findX = (position) => ((position + 0.5) / getRollout().total) * columns.wide;

function paintLine(position, colour, width) {
  if (position === null) return;
  pen.fillStyle = colour;
  pen.fillRect(findX(position) - width / 2, 0, width, HEIGHT);
}

function paintStretch(range, colour, alpha) {
  if (!range) return;
  pen.fillStyle = colour;
  pen.globalAlpha = alpha;
  pen.fillRect((range[0] / getRollout().total) * columns.wide, 0, Math.max(2, ((range[1] - range[0]) / getRollout().total) * columns.wide), HEIGHT);
  pen.globalAlpha = 1;
}

/* The line above the chart: what it shows and the token the cursor stands on. */
function showWords() {
  if (!columns) return;
  const rollout = getRollout();
  const { title, write } = tokenOverlays.all[view];
  const position = hovered ?? pinned;
  const ends = `${title}, ${columns.signed ? `${write(-columns.top)} to ` : "0 to "}${write(columns.top)}, over ${rollout.total} tokens`;
  const value = position === null ? null : tokenOverlays.values(rollout, view)[position];
  const token = position === null ? "" : tokenOverlays.visible(rollout.units[rollout.unitOf[position]][0].slice(0, 30), true).replace(/\n/g, "");
  words.textContent = position === null ? ends : `${position}: “${token}”, ${title.toLowerCase().replace("kl", "KL")} ${tokenOverlays.missing(value) ? "n/a" : write(value)}`;
}

function findPosition(event) {
  const box = canvas.getBoundingClientRect();
  return Math.max(0, Math.min(getRollout().total - 1, Math.floor(((event.clientX - box.left) / box.width) * getRollout().total)));
}

canvas.addEventListener("pointerdown", (event) => {
  if (event.button !== 0 || !columns) return;
  down = { x: event.clientX, position: findPosition(event), dragging: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!columns) return;
  const position = findPosition(event);
  if (down && (down.dragging || Math.abs(event.clientX - down.x) >= DRAG_FROM)) {
    down.dragging = true;
    dragged = [Math.min(down.position, position), Math.max(down.position, position) + 1];
  }
  reader.hover(position, "chart");
});
canvas.addEventListener("pointerup", () => {
  if (!down) return;
  if (down.dragging) reader.choose(dragged);
  else { reader.choose(null); reader.pin(down.position, { scroll: true }); }
  down = null;
});
canvas.addEventListener("pointercancel", () => { down = null; });
canvas.addEventListener("pointerleave", () => { if (!down) reader.hover(null, "chart"); });

new ResizeObserver(() => { if (columns && Math.floor(canvas.clientWidth) !== columns.wide) measureColumns(); }).observe(canvas);
addEventListener("scroll", () => { if (columns) scheduleDrawing(); }, { passive: true });
document.addEventListener("lab:theme", () => { colours = null; scheduleDrawing(); });

export const tokenChart = {
  use: useOverlay,
  hover(position) { if (hovered !== position) { hovered = position; scheduleDrawing(); showWords(); } },
  pin(position) { pinned = position; scheduleDrawing(); showWords(); },
  choose(range) { dragged = range; scheduleDrawing(); },
  get view() { return view; },
};
