/* What somebody chose for the charts of a run, as it stands in the address: axes, smoothing, filter, ranges, the chart in full screen. */
import { readSmoothing } from "./smoothing.js";

export function readSettings() {
  const query = new URLSearchParams(location.search);
  const zoom = readRange(query.get("zoom") || "");
  const ranges = query.getAll("y").map((one) => one.split("~")).map(([panel, ends]) => [panel, readRange(ends || "")]).filter(([, range]) => range);
  return {
    smooth: readSmoothing(query), // null for automatic
    x: ["step", "time", "tokens", "samples"].includes(query.get("x")) ? query.get("x") : "step",
    log: query.get("log") === "1",
    logX: query.get("log-x") === "1",
    outliers: query.get("outliers") === "0",
    filter: (query.get("filter") || "").slice(0, 100),
    zoom,
    ranges: Object.fromEntries(ranges), // of y, by the id of the panel
    full: query.get("full") || "",
  };
}

/* "low,high" as two numbers; null for anything else. */
function readRange(text) {
  const range = text.split(",").map(Number);
  return range.length === 2 && range.every(Number.isFinite) && range[0] < range[1] ? range : null;
}

function writeRange(range) { return range.map((end) => Number(end.toPrecision(7))).join(","); }

/* Keeps them in the address. */
export function writeSettings(settings) {
  const query = new URLSearchParams(location.search); // the step and the panel are kept by others
  const values = { smooth: settings.smooth === null ? "" : String(settings.smooth), x: settings.x === "step" ? "" : settings.x, log: settings.log ? "1" : "", "log-x": settings.logX ? "1" : "",
    outliers: settings.outliers ? "0" : "", filter: settings.filter,
    zoom: settings.zoom ? writeRange(settings.zoom) : "", full: settings.full };
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  query.delete("y");
  for (const [panel, range] of Object.entries(settings.ranges)) query.append("y", `${panel}~${writeRange(range)}`);
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}
