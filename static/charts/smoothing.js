/* How much the lines of a chart are smoothed: what a person chose, else USUAL where a line of the chart is noisy. The choice is remembered. */
const STORED = "lab-smoothing";
const FEWEST = 10; // points below which nothing is called noisy
const SHARE = 0.1; // of a line's variance
export const USUAL = 0.6;
export const HELP = `Exponential moving average with bias correction; the raw line stays visible, faint. Auto: ${USUAL} in charts with a noisy line, else none. A line is noisy when jumps from one point to the next make more than ${SHARE * 100} % of its variance.`;

/* Two points that have nothing to do with each other differ, squared, by twice the variance: half of the mean squared jump is the part that is noise. */
export function isNoisy(values) {
  const known = values.filter(Number.isFinite);
  if (known.length < FEWEST) return false;
  const middle = known.reduce((sum, value) => sum + value, 0) / known.length;
  const variance = known.reduce((sum, value) => sum + (value - middle) ** 2, 0) / known.length;
  const jumps = known.slice(1).reduce((sum, value, index) => sum + (value - known[index]) ** 2, 0) / (known.length - 1) / 2;
  return variance > 0 && jumps > SHARE * variance;
}

/* The weight for a chart with these series. Once noisy it stays so while the page is open: lines that change their looks as points come are worse. */
export function weighChart(chart, chosen, listValues) {
  if (chosen !== null) return chosen;
  chart.noisy ||= listValues().some(isNoisy);
  return chart.noisy ? USUAL : 0;
}

const clamp = (value) => Math.min(0.999, Math.max(0, Number(value) || 0));

/* What the address says, else what was chosen before; null for automatic. */
export function readSmoothing(query) {
  if (query.has("smooth")) return clamp(query.get("smooth"));
  try {
    const stored = localStorage.getItem(STORED);
    return stored === null ? null : clamp(stored);
  } catch { return null; } // storage may be refused
}

function rememberSmoothing(value) {
  try {
    if (value === null) localStorage.removeItem(STORED);
    else localStorage.setItem(STORED, String(value));
  } catch { /* the choice then lasts for this page */ }
}

/* The slider, the number and the button of smoothing.html; settings.smooth is kept up to date and changed() told. */
export function listenToSmoothing(settings, changed) {
  const [slider, typed, auto] = ["smooth", "smooth-number", "smooth-auto"].map((id) => document.getElementById(id));
  const show = (from = null) => {
    for (const input of [slider, typed]) if (input !== from) input.value = settings.smooth ?? USUAL;
    auto.setAttribute("aria-pressed", String(settings.smooth === null));
  };
  const choose = (value, from = null) => {
    settings.smooth = value;
    rememberSmoothing(value);
    show(from);
    changed();
  };
  document.getElementById("smooth-help").textContent = auto.title = HELP;
  for (const input of [slider, typed]) input.addEventListener("input", () => choose(clamp(input.value), input));
  auto.addEventListener("click", () => choose(null));
  show();
}
