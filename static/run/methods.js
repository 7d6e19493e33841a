/* The methods page: filters are folded where there is no room for them beside the results, and stay as a person left them. */
const narrow = matchMedia("(max-width: 60rem)");
let open = !narrow.matches;

function settle() {
  const facets = document.querySelector("[data-facets]");
  if (facets) facets.open = open;
}

narrow.addEventListener("change", () => { open = !narrow.matches; settle(); });
document.addEventListener("toggle", (event) => { if (event.target.matches("[data-facets]")) open = event.target.open; }, true);
document.addEventListener("htmx:afterSwap", settle);
settle();
