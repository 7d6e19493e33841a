/* The sections of the overview: where a panel goes, what a section is called, and in which order they stand. */
"use strict";
(function () {
  const { element } = lab;
  const UNNAMED = ["System", "Other"]; // folded sections that have no open part

  const key = (panel) => (panel.folded ? `${panel.section}+` : panel.section);

  /* What is open, then method by method with what belongs to it, then what is folded away. */
  function sectionOrder(panels) {
    const open = panels.filter((panel) => !panel.method && !panel.folded);
    const methods = panels.filter((panel) => panel.method);
    const folded = panels.filter((panel) => !panel.method && panel.folded);
    return [...new Set([...open, ...methods, ...folded].map(key))];
  }

  function makeSection(name, panel, methods) {
    const section = element("section", "chart-section");
    section.dataset.section = name;
    const grid = element("div", "chart-grid");
    if (panel.folded) {
      const fold = element("details", "fold");
      const words = panel.method ? `More of ${panel.method}` : UNNAMED.includes(panel.section) ? panel.section : `More: ${panel.section.toLowerCase()}`;
      fold.append(element("summary", "", words), grid);
      section.append(fold);
      return section;
    }
    section.append(panel.method ? methodHead(methods.find((one) => one.name === panel.method)) : element("h2", "", panel.section), grid);
    return section;
  }

  /* The title of a method leads to its page; the idea says in a sentence what the charts should show. */
  function methodHead(method) {
    const head = element("header", "method-head");
    const title = element("h2");
    const name = element(method.url ? "a" : "span", "", method.title);
    if (method.url) name.href = method.url;
    title.append(name);
    head.append(title, element("span", "badge", method.name));
    if (method.idea) head.append(element("p", "muted small", method.idea));
    return head;
  }

  Object.assign(lab, { makeSection, sectionOrder });
})();
