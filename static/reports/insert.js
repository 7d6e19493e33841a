/* The dialog that puts a block together: runs and metrics come from the server, the block is given back as Markdown. */

const dialog = document.getElementById("insert");
const form = document.getElementById("insert-form");
const box = document.getElementById("insert-runs");
const metric = document.getElementById("insert-metric");
const error = document.getElementById("insert-error");
const chosen = new Map(); // run number → name
let address = "";
let give = null;
let timer = 0;
let generation = 0;

export function openInsert(choices, done) {
  address = choices;
  give = done;
  error.textContent = "";
  dialog.showModal();
  showKind();
  fetchChoices();
}

function showKind() {
  const kind = form.elements.kind.value;
  for (const part of form.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(kind);
  error.textContent = "";
}

async function fetchChoices() {
  const asked = ++generation;
  const query = new URLSearchParams({ find: document.getElementById("insert-find").value });
  for (const number of chosen.keys()) query.append("run", number);
  let found = null;
  try {
    const answer = await fetch(`${address}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    found = await answer.json();
  } catch { error.textContent = "The runs could not be loaded. Try again."; return; }
  if (asked !== generation) return;
  showRuns(found.runs);
  showMetrics(found.metrics);
}

/* Chosen runs stand first and stay while the search changes. */
function showRuns(runs) {
  const focused = box.contains(document.activeElement) ? document.activeElement.value : null;
  const rest = runs.filter((run) => !chosen.has(run.number));
  const lines = [...[...chosen].map(([number, name]) => ({ number, name })), ...rest].map((run) => {
    const label = Object.assign(document.createElement("label"), { className: "check" });
    const tick = Object.assign(document.createElement("input"), { type: "checkbox", value: String(run.number), checked: chosen.has(run.number) });
    const name = Object.assign(document.createElement("bdi"), { textContent: run.name });
    const number = Object.assign(document.createElement("span"), { className: "muted", textContent: `#${run.number}` });
    tick.addEventListener("change", () => {
      if (tick.checked) chosen.set(run.number, run.name);
      else chosen.delete(run.number);
      fetchChoices();
    });
    label.append(tick, number, " ", name, " ", Object.assign(document.createElement("span"), { className: "muted small row-end", textContent: run.status || "" }));
    return label;
  });
  if (!lines.length) lines.push(Object.assign(document.createElement("p"), { className: "muted", textContent: "No run matches." }));
  box.replaceChildren(...lines);
  if (focused) box.querySelector(`input[value="${focused}"]`)?.focus();
}

function showMetrics(metrics) {
  const before = metric.value;
  const options = metrics.map(({ name, runs }) => new Option(runs < chosen.size ? `${name} (${runs} of ${chosen.size} runs)` : name, name, false, name === before));
  metric.replaceChildren(...(options.length ? options : [new Option(chosen.size ? "No metrics yet" : "Choose runs first", "")]));
}

/* The settings of the block, or what is missing. */
function readSettings(kind) {
  const value = (name) => form.elements[name].value.trim();
  const runs = [...chosen.keys()].join(", ");
  const columns = [...form.querySelectorAll("[name=columns]:checked")].map((one) => one.value).join(", ");
  if (kind === "chart") {
    if (!runs || !value("metric")) return { missing: "Choose runs and a metric." };
    return { runs, metric: value("metric"), x: value("x") === "step" ? "" : value("x"), smooth: value("smooth") === "auto" ? "" : value("smooth") };
  }
  if (kind === "table") return runs ? { runs, columns } : { missing: "Choose runs." };
  if (kind === "runs") return { search: value("search"), tag: value("tag"), status: value("status"), columns };
  if (kind === "rollout") return value("id") ? { id: value("id"), overlay: value("overlay") } : { missing: "Enter the id of a rollout: it stands in the URL of its page." };
  return value("run") && value("step") && value("group") ? { run: value("run"), step: value("step"), group: value("group") } : { missing: "Enter run, step and group." };
}

document.getElementById("insert-find").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(fetchChoices, 200); });
document.getElementById("insert-find").addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
form.elements.kind.addEventListener("change", showKind);
form.addEventListener("submit", (event) => {
  if (event.submitter?.value === "cancel") return;
  const kind = form.elements.kind.value;
  const settings = readSettings(kind);
  if (settings.missing) { event.preventDefault(); error.textContent = settings.missing; return; }
  const lines = Object.entries(settings).filter(([, value]) => value).map(([name, value]) => `${name}: ${value}`);
  give(["```" + kind, ...lines, "```"].join("\n"));
});
