/* The graph starts with what the page is about in its middle. */
const frame = document.getElementById("lineage");
const root = frame && frame.querySelector(".node.root");
if (root) {
  const box = root.getBoundingClientRect(), outer = frame.getBoundingClientRect();
  frame.scrollLeft += box.left - outer.left - (frame.clientWidth - box.width) / 2;
  frame.scrollTop += box.top - outer.top - (frame.clientHeight - box.height) / 2;
}
