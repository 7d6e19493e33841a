/* The axes of charts as somebody chose them: the boxes of axes.html, and from the settings the range of an axis. */
const MIDDLE = [0.05, 0.95]; // shares of a chart's points between which the y axis lies without outliers
const ROOM = 0.06; // of the height, above and below the lines

/* Lowest and highest of the values, or of their middle 90 %; Infinity and -Infinity of none. */
export function findEnds(values, withoutOutliers) {
  if (!withoutOutliers || values.length < 3) return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  const sorted = Float64Array.from(values).sort();
  return MIDDLE.map((share) => sorted[Math.round(share * (sorted.length - 1))]);
}

/* The range of y that was chosen for the chart, as Plotly wants it; null without one. */
export function findChosenRange(settings, id) {
  const chosen = settings.ranges[id];
  if (!chosen || (settings.log && chosen[0] <= 0)) return null;
  return settings.log ? chosen.map(Math.log10) : chosen;
}

/* The ends with room around them. */
export function addRoom([low, high]) {
  const room = (high - low || Math.abs(high) || 1) * ROOM;
  return [low - room, high + room];
}

/* The x axis from the zoom or the extent; a logarithmic one begins at the lowest x above 0. */
export function buildXRange(settings, extent, firstX) {
  const range = settings.zoom || extent();
  return settings.logX ? { type: "log", range: [Math.max(range[0], firstX()), range[1]].map(Math.log10) } : { range };
}

/* The ends of an axis after a drag, in its own unit; null where the drag left it as it was. */
export function readChangedRange(plot, change, name) {
  if (!(`${name}axis.range[0]` in change)) return null;
  const range = [0, 1].map((end) => change[`${name}axis.range[${end}]`]);
  return plot._fullLayout[`${name}axis`].type === "log" ? range.map((end) => 10 ** end) : range;
}

/* The boxes of axes.html; the settings are kept up to date and changed() told. */
export function listenToAxes(settings, changed) {
  const badge = document.getElementById("axes-changed");
  const count = () => { // beside the closed menu: how many of its boxes are ticked
    const ticked = document.querySelectorAll("#axes :checked").length;
    badge.hidden = !ticked;
    badge.textContent = String(ticked);
  };
  for (const [id, setting] of [["log-y", "log"], ["log-x", "logX"], ["outliers", "outliers"]]) {
    const input = document.getElementById(id);
    input.checked = settings[setting];
    input.addEventListener("change", () => { settings[setting] = input.checked; count(); changed(); });
  }
  count();
}
