/* The run's points in the page: loading, appending, smoothing, x-axes. No page here: a badge is handed in. */
const OPINIONS = /^(rewards\/.+\/(mean|std)|heldout\/(?!entropy$|length$).+)$/; // NaN there: the reward function had no opinion (metrics.py)
const NAMED = { nan: NaN, inf: Infinity, "-inf": -Infinity };

/* Says in a chart's badge which of its points are not drawn: a warning, except where reward functions just had no opinion. */
export function noteUndrawn(badge, bad, abstained) {
  const words = [bad ? `${bad} NaN or infinite` : "", abstained ? `no opinion at ${abstained} ${abstained === 1 ? "point" : "points"}` : ""].filter(Boolean).join(", ");
  badge.hidden = !words;
  badge.textContent = words;
  badge.classList.toggle("warn", bad > 0);
}

export class SeriesStore {
  constructor() { this.load({ axes: { step: [], time: [], tokens: [] }, series: {}, panels: [], methods: [], marks: [], samples: null, nonfinite: {}, abstained: {}, thinned: false }); }

  load(snapshot) {
    this.axes = new Map();
    this.start = Infinity; // seconds since 1970 of the first point
    this.addAxes(snapshot.axes);
    this.series = {};
    for (const [name, { steps, values }] of Object.entries(snapshot.series)) this.series[name] = { steps: [...steps], values: values.map(parseValue) };
    this.panels = snapshot.panels;
    this.methods = snapshot.methods;
    this.marks = snapshot.marks;
    this.samples = snapshot.samples; // {name, per_step}: what an optimizer step trains on; null where the spec does not say
    this.nonfinite = { ...snapshot.nonfinite };
    this.abstained = { ...snapshot.abstained };
    this.thinned = snapshot.thinned;
  }

  addAxes(axes) {
    axes.step.forEach((step, index) => {
      this.axes.set(step, [axes.time[index], axes.tokens[index]]);
      if (axes.time[index] !== null && axes.time[index] < this.start) this.start = axes.time[index];
    });
  }

  /* Adds a delta's points; a point of a step that is there replaces it. Returns the names of the metrics that changed. */
  apply(delta) {
    this.addAxes(delta.axes);
    const changed = new Set();
    for (const [name, points] of Object.entries(delta.points)) {
      const one = this.series[name] || (this.series[name] = { steps: [], values: [] });
      for (const [step, value] of points) {
        insertPoint(one, step, parseValue(value));
        this.count(name, parseValue(value));
      }
      changed.add(name);
    }
    return changed;
  }

  count(name, value) {
    if (Number.isFinite(value)) return;
    const counts = Number.isNaN(value) && OPINIONS.test(name) ? this.abstained : this.nonfinite;
    counts[name] = (counts[name] || 0) + 1;
  }

  get longest() { return Math.max(0, ...Object.values(this.series).map((one) => one.steps.length)); }

  /* x of a step on an axis; undefined where the step has none. */
  x(step, axis) {
    if (axis === "step") return step;
    if (axis === "samples") return this.samples ? step * this.samples.per_step : undefined;
    const known = this.axes.get(step);
    if (!known) return undefined;
    if (axis === "tokens") return known[1] ?? undefined;
    return known[0] === null ? undefined : (known[0] - this.start) / 60;
  }

  /* {x, y, smooth} of a metric for drawing: null where a line breaks, because steps are missing or a value is not finite. */
  line(name, axis, weight) {
    const one = this.series[name];
    const found = { x: [], y: [], smooth: [] };
    if (!one) return found;
    const gap = measureSpacing(one.steps) * (this.thinned ? 12 : 3.5);
    const smoothed = weight > 0 ? smoothSeries(one.steps, one.values, weight) : null;
    one.steps.forEach((step, index) => {
      const x = this.x(step, axis);
      if (x === undefined) return;
      if (index && step - one.steps[index - 1] > gap) addPoint(found, x, null, null);
      const finite = Number.isFinite(one.values[index]);
      addPoint(found, x, finite ? one.values[index] : null, smoothed && finite ? smoothed[index] : null);
    });
    return found;
  }
}

function addPoint(found, x, y, smooth) { found.x.push(x); found.y.push(y); found.smooth.push(smooth); }

function parseValue(value) { return typeof value === "string" ? NAMED[value] : value; }

function insertPoint(one, step, value) {
  let at = one.steps.length;
  while (at && one.steps[at - 1] > step) at -= 1;
  if (at && one.steps[at - 1] === step) one.values[at - 1] = value;
  else { one.steps.splice(at, 0, step); one.values.splice(at, 0, value); }
}

/* The usual distance between two points. */
function measureSpacing(steps) {
  if (steps.length < 2) return 1;
  const gaps = steps.slice(1).map((step, index) => step - steps[index]).sort((a, b) => a - b);
  return gaps[gaps.length >> 1] || 1;
}

/* Exponential moving average without the pull towards zero at its start; over a gap the past fades as if the points had been there. */
export function smoothSeries(steps, values, weight) {
  const usual = measureSpacing(steps);
  let [sum, total, last] = [0, 0, null];
  return values.map((value, index) => {
    if (!Number.isFinite(value)) return null;
    const decay = last === null ? 0 : weight ** ((steps[index] - last) / usual);
    sum = sum * decay + value;
    total = total * decay + 1;
    last = steps[index];
    return sum / total;
  });
}
