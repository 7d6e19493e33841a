/* A report's page: charts that follow their runs, tables and rollouts fetched anew while runs train, token overlays. */
import { followRuns } from "../compare/live.js";
import { ReportCharts } from "./charts.js";
import { colourRollouts } from "./rollouts.js";

const root = document.getElementById("report");
const charts = new ReportCharts(root.dataset.series);
charts.mount(root);
colourRollouts(root);

/* Blocks that are no chart, as the server shows them now; what somebody reads or has selected in them stays where it is. */
async function refreshBlocks() {
  const blocks = [...root.querySelectorAll("[data-block=table], [data-block=runs]")];
  if (!blocks.length) return;
  const answer = await fetch(root.dataset.live);
  if (!answer.ok) throw new Error(String(answer.status));
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const block of blocks) {
    const other = fresh.querySelector(`[data-block="${block.dataset.block}"][data-line="${block.dataset.line}"]`);
    if (other && other.innerHTML !== block.innerHTML && !block.contains(document.activeElement)) block.replaceChildren(...document.importNode(other, true).childNodes);
  }
}

const open = (root.dataset.open || "").split(",").filter(Boolean).map(Number);
if (open.length) followRuns(open, async (moved) => { await charts.refresh(moved); await refreshBlocks(); });
