/* A list of options too long to read through: those that hold all words of the search stay. What is chosen always stays. */
for (const search of document.querySelectorAll("[data-find-option]")) {
  const place = search.closest("details");
  const options = [...place.querySelectorAll(".option")];
  const texts = options.map((option) => option.textContent.toLowerCase());
  const told = place.querySelector("[data-found-options]");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    options.forEach((option, index) => {
      const matches = words.every((word) => texts[index].includes(word));
      found += Number(matches);
      option.hidden = !matches && !option.querySelector("label > input").checked;
    });
    told.textContent = words.length ? `${found} of ${options.length} match` : "";
  });
}
