/* Links of a comparison to the same page with other runs: the settings in the address stay. */

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-keep]");
  if (link) { // the same page with other runs: what else the address says stays
    const query = new URLSearchParams(location.search);
    query.delete("run");
    query.delete("find");
    for (const number of new URL(link.href).searchParams.getAll("run")) query.append("run", number);
    link.href = `${location.pathname}?${query}`;
  }
});
