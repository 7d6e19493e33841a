/* The map of a clustering: a point a rollout, coloured as its cluster's card below; a click opens the rollout. Everything on it is in the cards and in
   the table of each cluster too, so it is hidden from screen readers. */
import { formatNumber } from "../base/numbers.js";
import { readStyle } from "../charts/elements.js";
import { plotlyLoaded } from "../charts/plotly.js";

const SERIES = 8; // colours of the style sheet; further clusters have other symbols too
const SYMBOLS = ["circle", "diamond", "square", "cross"];
const box = document.querySelector("[data-map]");
const plot = box.querySelector(".cluster-plot");
const note = box.querySelector("[data-point]");
const usual = note.textContent;
let map = null;

function buildTraces() {
  const places = new Map();
  map.clusters.forEach((cluster, at) => places.set(cluster, [...(places.get(cluster) ?? []), at]));
  return [...places].map(([cluster, at]) => ({
    type: "scatter",
    mode: "markers",
    name: String(cluster),
    x: at.map((place) => map.x[place]),
    y: at.map((place) => map.y[place]),
    customdata: at,
    hoverinfo: "none",
    marker: {
      color: readStyle(`--series-${((cluster - 1) % SERIES) + 1}`),
      symbol: SYMBOLS[Math.floor((cluster - 1) / SERIES) % SYMBOLS.length],
      size: map.ids.length > 1000 ? 4 : 6,
      opacity: 0.75,
    },
  }));
}

function buildLayout() {
  const axis = { zeroline: false, gridcolor: readStyle("--border"), showticklabels: false, ticks: "", fixedrange: false };
  return {
    margin: { l: 8, r: 8, t: 8, b: 8 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { color: readStyle("--muted"), size: 11 },
    showlegend: map.clusters.some((cluster) => cluster > 1),
    legend: { orientation: "h", title: { text: "cluster " }, itemsizing: "constant" },
    hovermode: "closest",
    dragmode: "pan",
    xaxis: axis,
    yaxis: axis,
  };
}

function drawMap() {
  Plotly.react(plot, buildTraces(), buildLayout(), { displayModeBar: false, responsive: true, scrollZoom: false, showTips: false });
}

function describePoint(place) {
  const reward = map.rewards[place] === null ? "no reward" : `reward ${formatNumber(map.rewards[place])}`;
  return `Cluster ${map.clusters[place]}, step ${map.steps[place]}, ${reward}, rollout ${map.ids[place]}`;
}

async function start() {
  const answer = await fetch(box.dataset.map, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(String(answer.status));
  map = await answer.json();
  await plotlyLoaded;
  drawMap();
  plot.on("plotly_hover", (event) => { note.textContent = describePoint(event.points[0].customdata); });
  plot.on("plotly_unhover", () => { note.textContent = usual; });
  plot.on("plotly_click", (event) => location.assign(map.url.replace("/0/", `/${map.ids[event.points[0].customdata]}/`)));
  document.addEventListener("lab:theme", drawMap);
}

start().catch(() => { note.textContent = "The map could not be loaded. Reload the page to try again."; });
