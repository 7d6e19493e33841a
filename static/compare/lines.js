/* Points into lines for the charts of a comparison: smoothing, gaps, and groups of runs as mean with interval. No DOM here. */
import { smoothSeries } from "../charts/series.js";

/* {x, y, smooth} of one run's series; null where the line breaks, because steps are missing or a value is not finite. */
export function buildLine(one, weight) {
  const found = { x: [], y: [], smooth: [] };
  const smoothed = weight > 0 ? smoothSeries(one.steps, one.values.map((value) => value ?? NaN), weight) : null;
  const gap = measureSpacing(one.steps) * (one.thinned ? 12 : 3.5);
  one.steps.forEach((step, index) => {
    const x = one.x ? one.x[index] : step;
    if (x === null) return;
    if (index && step - one.steps[index - 1] > gap) addPoint(found, x, null, null);
    addPoint(found, x, one.values[index], smoothed ? smoothed[index] : null);
  });
  return found;
}

function addPoint(found, x, y, smooth) { found.x.push(x); found.y.push(y); found.smooth.push(smooth); }

export function measureSpacing(steps) {
  if (steps.length < 2) return 1;
  const gaps = steps.slice(1).map((step, index) => step - steps[index]).sort((a, b) => a - b);
  return gaps[gaps.length >> 1] || 1;
}

/* The mean over runs at each step that any of them has, each run smoothed on its own first: {x, mean, low, high, n}. low and high are null
   where fewer than two runs have the step. quantiles[f - 1] is Student's t for f degrees of freedom. */
export function buildMean(members, weight, quantiles) {
  const at = new Map(); // step → [values, xs]
  for (const one of members) {
    const values = one.values.map((value) => value ?? NaN);
    const used = weight > 0 ? smoothSeries(one.steps, values, weight) : values;
    one.steps.forEach((step, index) => {
      const x = one.x ? one.x[index] : step;
      if (!Number.isFinite(used[index]) || used[index] === null || x === null) return;
      if (!at.has(step)) at.set(step, [[], []]);
      at.get(step)[0].push(used[index]);
      at.get(step)[1].push(x);
    });
  }
  const steps = [...at.keys()].sort((a, b) => a - b);
  const found = { x: [], mean: [], low: [], high: [], n: [] };
  const gap = measureSpacing(steps) * 3.5;
  steps.forEach((step, index) => {
    const [values, xs] = at.get(step);
    const x = computeMean(xs);
    if (index && step - steps[index - 1] > gap) add(found, x, null, null, 0);
    add(found, x, computeMean(values), computeHalfInterval(values, quantiles), values.length);
  });
  return found;
}

function add(found, x, middle, apart, n) {
  found.x.push(x);
  found.mean.push(middle);
  found.low.push(apart === null ? null : middle - apart);
  found.high.push(apart === null ? null : middle + apart);
  found.n.push(n);
}

export function computeMean(values) { return values.reduce((sum, value) => sum + value, 0) / values.length; }

/* Half the width of the interval of the mean; null for a single value. */
export function computeHalfInterval(values, quantiles) {
  if (values.length < 2) return null;
  const middle = computeMean(values);
  const variance = values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1);
  return quantiles[values.length - 2] * Math.sqrt(variance / values.length);
}

/* The band as closed outlines, one for each unbroken stretch of at least two steps, with null between them. */
export function buildOutline(found, floor) {
  const shape = { x: [], y: [] };
  let stretch = [];
  const close = () => {
    if (stretch.length > 1) {
      const back = stretch.toReversed();
      if (shape.x.length) { shape.x.push(null); shape.y.push(null); }
      shape.x.push(...stretch.map((i) => found.x[i]), ...back.map((i) => found.x[i]));
      shape.y.push(...stretch.map((i) => found.high[i]), ...back.map((i) => Math.max(found.low[i], floor)));
    }
    stretch = [];
  };
  found.x.forEach((x, index) => { if (found.low[index] === null) close(); else stretch.push(index); });
  close();
  return shape;
}

/* The place of the finite y nearest to x; -1 where none is within reach. */
export function findNearest(xs, ys, x, reach) {
  let [low, high] = [0, xs.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  let best = -1;
  for (let at = Math.max(0, low - 2); at <= Math.min(xs.length - 1, low + 1); at += 1) {
    if (ys[at] === null || Math.abs(xs[at] - x) > reach) continue;
    if (best < 0 || Math.abs(xs[at] - x) < Math.abs(xs[best] - x)) best = at;
  }
  return best;
}
