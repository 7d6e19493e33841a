/* What the page does with a point that somebody picked in a chart: the overview opens its rollouts beside the charts (run/step-panel.js).
   show(step, heldout, opens, figure) is null where nothing stands beside a chart. */

export const picks = { show: null };
