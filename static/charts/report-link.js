/* "Add to report" among the tools of a chart: the chart with the settings of the moment it is pressed. */
import { makeElement } from "./elements.js";

/* ``address`` leads to the page that asks which report, with the runs where the page knows them; read() gives the block's other settings. */
export function makeReportLink(address, title, read) {
  const link = makeElement("a", "icon-button chart-tool", "Report");
  link.href = address;
  link.title = `Add ${title} to a report`;
  link.setAttribute("aria-label", link.title);
  link.addEventListener("click", () => {
    const url = new URL(address, location.href);
    const { x, smooth, log, ...rest } = read();
    const settings = { ...rest, x: x === "step" ? "" : x, smooth: smooth === null ? "" : String(smooth), log: log ? "yes" : "" };
    for (const [name, value] of Object.entries(settings)) if (value) url.searchParams.set(name, value);
    link.href = url.href;
  });
  return link;
}
