/* The sections of the overview: where a panel goes, what a section is called, and in which order they stand. */
import { makeElement } from "../charts/elements.js";

const UNNAMED = ["System", "Other"]; // folded sections that have no open part

const nameSection = (panel) => (panel.folded ? `${panel.section}+` : panel.section);

/* What is open, then method by method with what belongs to it, then what is folded away. */
export function orderSections(panels) {
  const open = panels.filter((panel) => !panel.method && !panel.folded);
  const methods = panels.filter((panel) => panel.method);
  const folded = panels.filter((panel) => !panel.method && panel.folded);
  return [...new Set([...open, ...methods, ...folded].map(nameSection))];
}

export function makeSection(name, panel, methods) {
  const section = makeElement("section", "chart-section");
  section.dataset.section = name;
  const grid = makeElement("div", "chart-grid");
  if (panel.folded) {
    const fold = makeElement("details", "fold");
    const words = panel.method ? `More of ${panel.method}` : UNNAMED.includes(panel.section) ? panel.section : `More: ${panel.section.toLowerCase()}`;
    fold.append(makeElement("summary", "", words), grid);
    section.append(fold);
    return section;
  }
  section.append(panel.method ? makeMethodHead(methods.find((one) => one.name === panel.method)) : makeElement("h2", "", panel.section), grid);
  return section;
}

/* The title of a method leads to its page; the idea says in a sentence what the charts should show. */
function makeMethodHead(method) {
  const head = makeElement("header", "method-head");
  const title = makeElement("h2");
  const name = makeElement(method.url ? "a" : "span", "", method.title);
  if (method.url) name.href = method.url;
  title.append(name);
  head.append(title, makeElement("span", "badge", method.name));
  if (method.idea) head.append(makeElement("p", "muted small", method.idea));
  return head;
}

