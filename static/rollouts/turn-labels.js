/* Labels on the turns of an episode: sent without leaving the page, taken back by u, given by keys on the current turn. The server answers with the
   whole part of the page; text of models arrives escaped and is parsed, never run. */
import { announce, bindKey, showToast } from "../base/page.js";
import { askServer, describeFailure } from "./annotations.js";
import { rememberUndo } from "./annotations-undo.js";

let current = 0; // number of the turn that the keys are about

const findEpisode = () => document.getElementById("episode");
const listTurns = () => [...findEpisode().querySelectorAll("#episode-nodes [data-turn]")];
const findTurn = () => listTurns().find((turn) => Number(turn.dataset.node) === current);

function showEpisode(html) {
  const next = new DOMParser().parseFromString(html || "", "text/html").getElementById("episode"); // scripts of a parsed document never run
  if (!next) return;
  const now = findEpisode();
  const open = (part) => [...part.querySelectorAll("details")];
  const folded = open(now).map((one) => one.open);
  for (const [place, one] of open(next).entries()) one.open = folded[place] ?? one.open;
  const path = describeFocus(now);
  now.replaceWith(document.adoptNode(next));
  markCurrent();
  if (path) findEpisode().querySelector(path)?.focus({ preventScroll: true });
}

/* A selector of what has the focus, so that it has it again among the new elements. */
function describeFocus(part) {
  const focus = document.activeElement;
  if (!part.contains(focus)) return "";
  const turn = focus.closest("[data-node]")?.dataset.node;
  const branch = focus.closest("[data-branch]")?.dataset.branch;
  const inside = branch ? `[data-branch="${branch}"]` : `[data-node="${turn}"]`;
  if (focus.matches("[data-mark]")) return `${inside} [data-mark="${focus.dataset.mark}"]`;
  const other = focus.closest("[data-other]")?.dataset.other;
  if (other && focus.matches("[data-said]")) return `[data-other="${other}"] [data-said="${focus.dataset.said}"]`;
  if (focus.matches("[data-prefer]")) return `${inside} [data-prefer]`;
  return turn && focus.matches("[data-turn]") ? `#episode-nodes ${inside}` : "";
}

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-turn-label]");
  if (!form) return;
  event.preventDefault();
  sendLabel(form, event.submitter);
});

async function sendLabel(form, button) {
  if (form.dataset.sending) return;
  form.dataset.sending = "1";
  const data = Object.fromEntries(new FormData(form));
  delete data.csrfmiddlewaretoken;
  if (button?.name) data[button.name] = button.value;
  const undo = UNDOING[form.dataset.turnLabel](form, data);
  const answer = await askServer(form.action, data);
  delete form.dataset.sending;
  if (answer.status !== 200) { showToast(describeFailure(answer), "error"); return; }
  showEpisode(answer.body.episode);
  rememberUndo({ what: "turn", url: form.action, ...undo }, { ...answer.body, fresh: true });
}

function undoVerdict(form, data) {
  const before = form.querySelector('[aria-pressed="true"]')?.dataset.mark || "";
  return { data: { node: data.node, verdict: before }, label: data.verdict ? `Turn ${data.node} marked ${data.verdict}` : "Verdict removed" };
}

/* What was preferred before is preferred again. */
function undoPreference(form, data) {
  const fork = form.closest("[data-fork]");
  const before = fork?.querySelector('[data-prefer][aria-pressed="true"]')?.closest("form");
  const { chosen, rejected } = before ? Object.fromEntries(new FormData(before)) : data;
  const label = data.withdraw ? "Preference removed" : `Branch ${data.chosen} preferred`;
  return { data: before ? { chosen, rejected } : { chosen, rejected, withdraw: "1" }, label };
}

function undoMember(form, data) {
  const before = form.querySelector('[aria-pressed="true"]')?.dataset.said || "";
  return { data: { node: data.node, other: data.other, verdict: before }, label: data.verdict ? `The other turn is ${data.verdict}` : "Preference removed" };
}

const UNDOING = { verdict: undoVerdict, preference: undoPreference, member: undoMember };

document.addEventListener("annotations:undone", (event) => showEpisode(event.detail.episode));

function markCurrent() {
  for (const turn of listTurns()) {
    if (Number(turn.dataset.node) === current) turn.setAttribute("aria-current", "true");
    else turn.removeAttribute("aria-current");
  }
}

function moveTurn(by) {
  const turns = listTurns();
  if (!turns.length) return;
  findEpisode().querySelector("#episode-nodes").open = true;
  const at = turns.findIndex((turn) => Number(turn.dataset.node) === current);
  const next = turns[at < 0 ? 0 : Math.max(0, Math.min(turns.length - 1, at + by))];
  current = Number(next.dataset.node);
  markCurrent();
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
  announce(`Turn ${current}`);
}

function judgeCurrent(mark) {
  const button = findTurn()?.querySelector(`[data-mark="${mark}"]`);
  if (button) sendLabel(button.form, button);
  else showToast("Choose a turn first: v, then j.", "info", 3);
}

function preferCurrent() {
  const button = findEpisode().querySelector(`[data-branch="${current}"] [data-prefer]`);
  if (button) sendLabel(button.form, button);
  else showToast("The current turn is no branch of a state.", "info", 3);
}

document.addEventListener("focusin", (event) => {
  const turn = event.target.closest?.("#episode-nodes [data-turn]");
  if (turn && Number(turn.dataset.node) !== current) { current = Number(turn.dataset.node); markCurrent(); }
});
document.addEventListener("click", (event) => {
  const turn = event.target.closest("#episode-nodes [data-turn]");
  if (turn) { current = Number(turn.dataset.node); markCurrent(); }
});

bindKey("v j", "Next turn of the episode", () => moveTurn(1));
bindKey("v k", "Previous turn of the episode", () => moveTurn(-1));
bindKey("v g", "Mark the current turn good", () => judgeCurrent("good"));
bindKey("v b", "Mark the current turn bad", () => judgeCurrent("bad"));
bindKey("v p", "Prefer the branch of the current turn", preferCurrent);

/* The tree's page and links name a node: it becomes the current turn. */
function openNamedNode() {
  const named = /^#node-(\d{1,9})$/.exec(location.hash);
  const line = named && document.getElementById(`node-${named[1]}`);
  if (!line) return;
  line.closest("details").open = true;
  current = Number(named[1]);
  markCurrent();
  line.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", openNamedNode);
openNamedNode();
