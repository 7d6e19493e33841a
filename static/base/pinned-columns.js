/* Columns of a table that stay at its left edge while the others are scrolled: each begins where the one before it ends. Those that would leave
   less than two fifths of the box for the others scroll with them. */
const SHARE = 0.6;
const seen = new WeakSet();

function placePins(table) {
  const room = table.parentElement.clientWidth * SHARE;
  let left = 0;
  for (const cell of table.tHead.rows[0].querySelectorAll(".pinned")) {
    const place = /pin-(\d)/.exec(cell.className)[1];
    const width = cell.offsetWidth;
    table.style.setProperty(`--pin-${place}`, left + width <= room ? `${left}px` : "auto");
    left += width;
  }
}

const watcher = new ResizeObserver((entries) => { for (const { target } of entries) placePins(target.closest("table") ?? target.querySelector("table")); });

function watchTables() {
  for (const table of document.querySelectorAll("table[data-pinned]")) {
    if (seen.has(table)) continue;
    seen.add(table);
    watcher.observe(table.parentElement);
    for (const cell of table.tHead.rows[0].querySelectorAll(".pinned")) watcher.observe(cell);
  }
}
watchTables();
document.addEventListener("htmx:afterSettle", watchTables);
