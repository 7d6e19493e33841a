/* The tree of turns: arrow keys move between them, and the current one's line of the table stands beside the picture. Texts are copied as nodes that
   the server escaped. */
const frame = document.getElementById("tree");
const detail = document.getElementById("tree-detail");
const turns = new Map([...frame.querySelectorAll("[data-turn]")].map((turn) => [turn.dataset.turn, turn]));
const below = new Map(); // parent → its children from the top to the bottom
for (const turn of turns.values()) {
  if (turn.dataset.turn === turn.dataset.parent) continue;
  if (!below.has(turn.dataset.parent)) below.set(turn.dataset.parent, []);
  below.get(turn.dataset.parent).push(turn);
}
const labels = [...document.querySelectorAll("#tree-table thead th")].map((head) => head.textContent);

function showDetail(turn) {
  const row = document.getElementById(turn.dataset.row);
  const list = document.createElement("dl");
  for (const [place, cell] of [...row.cells].entries()) {
    const value = document.createElement("dd");
    value.append(...[...cell.cloneNode(true).childNodes]);
    if (!value.textContent.trim()) continue;
    list.append(Object.assign(document.createElement("dt"), { textContent: labels[place] }), value);
  }
  detail.replaceChildren(list);
}

function makeCurrent(turn) {
  for (const other of frame.querySelectorAll(".current")) { other.classList.remove("current"); other.setAttribute("tabindex", "-1"); }
  turn.classList.add("current");
  turn.setAttribute("tabindex", "0");
  showDetail(turn);
}

/* The picture moves only as far as the turn needs. */
function scrollTo(turn) {
  const box = turn.querySelector("circle").getBoundingClientRect();
  const outer = frame.getBoundingClientRect();
  const room = 40;
  if (box.left < outer.left + room) frame.scrollLeft -= outer.left + room - box.left;
  if (box.right > outer.right - 4 * room) frame.scrollLeft += box.right - outer.right + 4 * room;
  if (box.top < outer.top + room) frame.scrollTop -= outer.top + room - box.top;
  if (box.bottom > outer.bottom - room) frame.scrollTop += box.bottom - outer.bottom + room;
}

/* Above and below are the siblings; past the first or the last one, the next turn of the same depth. */
function findBeside(turn, by) {
  const siblings = below.get(turn.dataset.parent) || [];
  const beside = siblings[siblings.indexOf(turn) + by];
  if (beside || turn.dataset.turn === turn.dataset.parent) return beside;
  const level = [...turns.values()].filter((one) => measureDepth(one) === measureDepth(turn)).sort((one, other) => readHeight(one) - readHeight(other));
  return level[level.indexOf(turn) + by];
}

function measureDepth(turn) {
  return Number(turn.querySelector("circle").getAttribute("cx"));
}

function readHeight(turn) {
  return Number(turn.querySelector("circle").getAttribute("cy"));
}

function findNext(turn, key) {
  if (key === "ArrowUp") return findBeside(turn, -1);
  if (key === "ArrowDown") return findBeside(turn, 1);
  if (key === "ArrowLeft") return turns.get(turn.dataset.parent);
  if (key === "ArrowRight") return below.get(turn.dataset.turn)?.[0];
  if (key === "Home") return turns.get("0");
  return null;
}

frame.addEventListener("keydown", (event) => {
  const turn = event.target.closest("[data-turn]");
  if (!turn || event.ctrlKey || event.metaKey || event.altKey) return;
  const next = findNext(turn, event.key);
  if (!next) return;
  event.preventDefault();
  next.focus({ preventScroll: true });
  scrollTo(next);
});
frame.addEventListener("focusin", (event) => {
  const turn = event.target.closest("[data-turn]");
  if (turn) makeCurrent(turn);
});
frame.addEventListener("pointerover", (event) => {
  const turn = event.target.closest("[data-turn]");
  if (turn) showDetail(turn);
});

scrollTo(turns.get("0"));
