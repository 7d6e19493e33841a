/* Rollouts of a report whose block names an overlay: their tokens, coloured as in the feed. Text comes from the server as text nodes and stays where
   there are no tokens. */
import { tokenCards, tokenOverlays } from "../rollouts/tokens.js";

const kept = new Map(); // rollout → its tokens, so that the preview asks once

async function fetchTokens(article) {
  const key = article.dataset.rollout;
  if (!kept.has(key)) {
    const answer = await fetch(`${article.dataset.run}?ids=${key}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    kept.set(key, (await answer.json()).rollouts[0] || null);
  }
  return kept.get(key);
}

export async function colourRollouts(root) {
  for (const article of root.querySelectorAll("[data-overlay]:not([data-overlay=''])")) {
    let data = null;
    try { data = await fetchTokens(article); } catch { continue; } // the text is there without its colours
    if (!data || data.error || !article.isConnected) continue;
    const [units, overlay] = [article.querySelector("[data-units]"), article.dataset.overlay];
    tokenCards.build(article, data);
    for (const name of tokenCards.views) units.classList.toggle(`view-${name}`, name === overlay);
    const scale = tokenCards.colour([article], overlay);
    const legend = article.querySelector("[data-legend]");
    legend.replaceChildren(...tokenOverlays.legendParts(overlay, scale, "this rollout"));
    article.querySelector("[data-text]").hidden = true;
    units.hidden = legend.hidden = false;
  }
}
