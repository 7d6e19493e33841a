/* What somebody chose for the charts of a page, as it stands in the address: axes, smoothing, ranges; of a run also a filter and the chart in full
   screen. */
import { readSmoothing } from "./smoothing.js";

export const AXES = ["step", "time", "tokens", "samples"];

/* Of every page with charts. */
export function readAxes(query) {
  const ranges = query.getAll("y").map(splitRange).filter(([, range]) => range);
  return {
    smooth: readSmoothing(query), // null for automatic
    x: AXES.includes(query.get("x")) ? query.get("x") : "step",
    log: query.get("log") === "1",
    logX: query.get("log-x") === "1",
    outliers: query.get("outliers") === "0",
    zoom: readRange(query.get("zoom") || ""),
    ranges: Object.fromEntries(ranges), // of y, by the name of the chart
  };
}

/* The name may have a "~" of its own. */
function splitRange(text) {
  const at = text.lastIndexOf("~");
  return [text.slice(0, Math.max(0, at)), readRange(text.slice(at + 1))];
}

/* "low,high" as two numbers; null for anything else. */
function readRange(text) {
  const range = text.split(",").map(Number);
  return range.length === 2 && range.every(Number.isFinite) && range[0] < range[1] ? range : null;
}

function writeRange(range) { return range.map((end) => Number(end.toPrecision(7))).join(","); }

/* Sets the parameters of an address; empty ones leave it. */
export function writeValues(query, values) {
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
}

export function writeAxes(query, settings) {
  writeValues(query, { smooth: settings.smooth === null ? "" : String(settings.smooth), x: settings.x === "step" ? "" : settings.x, log: settings.log ? "1" : "",
    "log-x": settings.logX ? "1" : "", outliers: settings.outliers ? "0" : "", zoom: settings.zoom ? writeRange(settings.zoom) : "" });
  query.delete("y");
  for (const [name, range] of Object.entries(settings.ranges)) query.append("y", `${name}~${writeRange(range)}`);
}

/* Of a run's page. */
export function readSettings() {
  const query = new URLSearchParams(location.search);
  return { ...readAxes(query), filter: (query.get("filter") || "").slice(0, 100), full: query.get("full") || "" };
}

/* Keeps them in the address. */
export function writeSettings(settings) {
  const query = new URLSearchParams(location.search); // the step and the panel are kept by others
  writeAxes(query, settings);
  writeValues(query, { filter: settings.filter, full: settings.full });
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}
