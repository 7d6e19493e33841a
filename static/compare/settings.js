/* What somebody chose for a comparison, as it stands in the address: what every page of charts has, runs that are hidden, groups, folds. */
import { readAxes, writeAxes, writeValues } from "../charts/settings.js";

export function readSettings(runs) {
  const query = new URLSearchParams(location.search);
  const keys = new Set(runs.flatMap((run) => Object.keys(run.config)));
  return {
    ...readAxes(query),
    filter: (query.get("m") || "").slice(0, 200),
    hidden: new Set(query.getAll("hide").map(Number)),
    by: query.getAll("by").filter((key) => keys.has(key)),
    more: query.get("more") === "1",
    config: query.get("config") === "all" ? "all" : "",
  };
}

export function writeSettings(settings, runs) {
  const query = new URLSearchParams(runs.map((run) => ["run", run.number]));
  writeAxes(query, settings);
  writeValues(query, { m: settings.filter });
  for (const number of settings.hidden) if (runs.some((run) => run.number === number)) query.append("hide", number);
  for (const key of settings.by) query.append("by", key);
  writeValues(query, { more: settings.more ? "1" : "", config: settings.config });
  history.replaceState(null, "", `${location.pathname}?${query}${location.hash}`);
}
