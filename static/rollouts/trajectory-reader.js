/* What the reader of a rollout does, for the chart, the search and the lists beside the text: hover(position, from), pin(position, options),
   choose(range), and state.token, the token they stand on. The page fills it (trajectory.js), which imports all of those. */

export const reader = {};
