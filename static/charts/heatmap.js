/* A map of cells on a canvas: columns of steps, rows of positions, kinds or values. One cell is under the cursor, which the pointer and the
   arrow keys move; a click or Enter chooses it. Empty cells are hatched, never drawn as zero. */
import { readStyle } from "./elements.js";

// Cividis: lightness rises evenly, and it looks the same to people who do not tell red from green.
const RAMP = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"].map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
const [TOP, RIGHT, BOTTOM] = [6, 8, 36];

/* The colour at 0 … 1 of the ramp. */
function pickRampColor(share) {
  const at = Math.min(1, Math.max(0, share)) * (RAMP.length - 1);
  const low = Math.min(RAMP.length - 2, Math.floor(at));
  return `rgb(${RAMP[low].map((from, channel) => Math.round(from + (RAMP[low + 1][channel] - from) * (at - low))).join(" ")})`;
}

function makeHatch(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  Object.assign(pen, { strokeStyle: readStyle("--border"), lineWidth: 1 });
  pen.beginPath();
  for (const [x, y] of [[-1, 1], [0, 6], [5, 7]]) { pen.moveTo(x, y); pen.lineTo(x + (y === 6 ? 6 : 2), y - (y === 6 ? 6 : 2)); }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

export class Heatmap {
  /* ``choose(row, column)`` is called for a chosen cell, ``tell(row, column)`` for the one under the cursor (null, null for none). */
  constructor(box, { choose, tell }) {
    Object.assign(this, { box, choose, tell, data: null, cursor: null, chosen: null, pin: null });
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    box.append(this.canvas);
    box.addEventListener("pointermove", (event) => this.point(event));
    box.addEventListener("pointerleave", () => { if (document.activeElement !== box) this.move(null); });
    box.addEventListener("click", (event) => { this.point(event); this.pick(); });
    box.addEventListener("keydown", (event) => this.press(event));
    box.addEventListener("focus", () => { if (!this.cursor && this.data && box.matches(":focus-visible")) this.move(this.chosen || [0, 0]); });
    new ResizeObserver(() => this.draw()).observe(box);
    document.addEventListener("lab:theme", () => this.draw());
  }

  /* ``data``: columns [first, last], rows [label, …], values (R × C, null where empty), share(value) → 0 … 1, and optionally
     color(share), lines [{values, style}] with y(value) in rows, upwards (row 0 below), named (a label for every row), blank (empty cells stay plain). */
  show(data) {
    this.data = data;
    this.cursor = null;
    this.draw();
  }

  get left() { return this.data.named ? Math.min(150, this.width * 0.34) : 58; }

  draw() {
    const { data, canvas } = this;
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    if (!data || !this.width) return;
    const scale = devicePixelRatio || 1;
    canvas.width = this.width * scale;
    canvas.height = this.height * scale;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.clearRect(0, 0, this.width, this.height);
    this.area = { x: this.left, y: TOP, width: this.width - this.left - RIGHT, height: this.height - TOP - BOTTOM };
    if (!data.blank) { pen.fillStyle = makeHatch(pen); pen.fillRect(this.area.x, this.area.y, this.area.width, this.area.height); }
    this.cells(pen);
    for (const line of data.lines || []) this.line(pen, line);
    this.axes(pen);
    this.marks(pen);
  }

  /* The rectangle of a cell, on whole pixels so that neighbours touch. */
  cell(row, column) {
    const { columns, rows, upwards } = this.data;
    const { x, y, width, height } = this.area;
    const place = upwards ? rows.length - 1 - row : row;
    const [left, right] = [0, 1].map((by) => Math.round(x + (width * (column + by)) / columns.length));
    const [top, bottom] = [0, 1].map((by) => Math.round(y + (height * (place + by)) / rows.length));
    return [left, top, right - left, bottom - top];
  }

  cells(pen) {
    const color = this.data.color || pickRampColor;
    this.data.values.forEach((row, at) => row.forEach((value, column) => {
      if (value === null || (this.data.blank && !value)) return;
      pen.fillStyle = color(this.data.share(value));
      pen.fillRect(...this.cell(at, column));
    }));
  }

  line(pen, { values, color, width = 1.6, dash = [] }) {
    const { x, y, height, width: wide } = this.area;
    pen.beginPath();
    let down = false;
    values.forEach((value, column) => {
      if (value === null) { down = false; return; }
      const at = [x + (wide * (column + 0.5)) / values.length, y + height * (1 - this.data.y(value))];
      if (down) pen.lineTo(...at);
      else pen.moveTo(...at);
      down = true;
    });
    Object.assign(pen, { strokeStyle: color, lineWidth: width });
    pen.setLineDash(dash);
    pen.stroke();
    pen.setLineDash([]);
  }

  axes(pen) {
    const { columns, rows, named, rowTitle, ticks } = this.data;
    const { x, y, width, height } = this.area;
    Object.assign(pen, { fillStyle: readStyle("--muted"), font: `11px ${readStyle("--font")}`, textBaseline: "middle", textAlign: "right" });
    const every = named ? 1 : Math.ceil(rows.length / Math.max(2, Math.floor(height / 44)));
    rows.forEach((row, at) => {
      if (at % every || (!named && ticks && ticks[at] === undefined)) return;
      const [, top, , tall] = this.cell(at, 0);
      pen.fillText(ticks ? ticks[at] : row, x - 6, top + tall / 2, this.left - 8);
    });
    const across = Math.ceil(columns.length / Math.max(2, Math.floor(width / 64)));
    pen.textAlign = "center";
    columns.forEach(([first], at) => { if (at % across === 0) pen.fillText(String(first), this.cell(0, at)[0] + this.cell(0, at)[2] / 2, y + height + 11); });
    pen.fillText("step", x + width / 2, y + height + 27);
    if (!named && rowTitle) {
      pen.save();
      pen.translate(9, y + height / 2);
      pen.rotate(-Math.PI / 2);
      pen.fillText(rowTitle, 0, 0);
      pen.restore();
    }
  }

  marks(pen) {
    const { columns } = this.data;
    const column = this.pin === null ? -1 : columns.findLastIndex(([first]) => first <= this.pin);
    if (column >= 0) {
      const [left, , wide] = this.cell(0, column);
      Object.assign(pen, { strokeStyle: readStyle("--accent"), lineWidth: 2 });
      pen.strokeRect(left, this.area.y - 2, wide, this.area.height + 4);
    }
    for (const [cell, outer] of [[this.chosen, readStyle("--text")], [this.cursor, readStyle("--focus")]]) {
      if (!cell || cell[0] >= this.data.rows.length || cell[1] >= columns.length) continue;
      const [left, top, wide, tall] = this.cell(...cell);
      Object.assign(pen, { strokeStyle: readStyle("--surface"), lineWidth: 4 });
      pen.strokeRect(left, top, wide, tall);
      Object.assign(pen, { strokeStyle: outer, lineWidth: 2 });
      pen.strokeRect(left, top, wide, tall);
    }
  }

  point(event) {
    if (!this.data || !this.area) return;
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - this.area.x) / this.area.width, (event.clientY - box.top - this.area.y) / this.area.height];
    if (x < 0 || x >= 1 || y < 0 || y >= 1) { this.move(null); return; }
    const row = Math.floor(y * this.data.rows.length);
    this.move([this.data.upwards ? this.data.rows.length - 1 - row : row, Math.floor(x * this.data.columns.length)]);
  }

  move(cell) {
    if (String(cell) === String(this.cursor)) return;
    this.cursor = cell;
    this.tell(...(cell || [null, null]));
    this.draw();
  }

  pick() { if (this.cursor) { this.chosen = this.cursor; this.draw(); this.choose(...this.cursor); } }

  press(event) {
    if (!this.data || event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, column] = this.cursor || this.chosen || [0, 0];
    const up = this.data.upwards ? 1 : -1;
    const last = this.data.columns.length - 1;
    const moves = { ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], ArrowUp: [row + up, column], ArrowDown: [row - up, column], Home: [row, 0], End: [row, last] };
    if (event.key === "Enter" || event.key === " ") this.pick();
    else if (moves[event.key]) this.move([Math.min(this.data.rows.length - 1, Math.max(0, moves[event.key][0])), Math.min(last, Math.max(0, moves[event.key][1]))]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

/* A bar of the colours with what its ends stand for. */
export function drawHeatLegend(box, { low, high, color = pickRampColor, empty = "" }) {
  const bar = document.createElement("canvas");
  Object.assign(bar, { width: 160, height: 10, className: "heat-bar" });
  const pen = bar.getContext("2d");
  for (let x = 0; x < 160; x += 1) { pen.fillStyle = color(x / 159); pen.fillRect(x, 0, 1, 10); }
  bar.setAttribute("aria-hidden", "true");
  const words = (text, name = "") => Object.assign(document.createElement("span"), { textContent: text, className: name });
  box.replaceChildren(words(low), bar, words(high), ...(empty ? [words("", "heat-none"), words(empty)] : []));
}

