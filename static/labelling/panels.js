/* How texts stand on the labelling page: the prompt, and answers in panels of the same width. Text nodes only, whatever a model wrote. */
import { makeDiffNodes } from "./diff.js";
import { announce } from "../base/page.js";
import { tokenOverlays } from "../rollouts/tokens.js";
import { makeKeyHint } from "./keys.js";
import { make, page } from "./page.js";
import { store } from "./store.js";

const LONG = 1200; // characters of a prompt that is folded
const LINES = 14;
const FOLDED = 400; // characters of thinking from which it can be folded
const view = { plain: false, spaces: false, lock: false, thinking: true, ...store.kept("view", {}, `lab-labels-${page.person}-`) };

const shownText = (text) => tokenOverlays.visible(text, view.spaces);

// ---- rendered: a little Markdown, made of elements and text nodes

const INLINE = /(`[^`\n]+`|\*\*[^*\n]+\*\*|(?<![*\w])\*(?![*\s])[^*\n]+(?<!\s)\*(?![*\w]))/;

function writeInline(box, text) {
  for (const part of text.split(INLINE)) {
    const [code, strong] = [/^`[^`\n]+`$/.test(part), /^\*\*[^*\n]+\*\*$/.test(part)];
    if (code) box.append(make("code", "", shownText(part.slice(1, -1))));
    else if (strong) box.append(make("strong", "", shownText(part.slice(2, -2))));
    else if (part.length > 2 && part.startsWith("*") && INLINE.test(part) && part.endsWith("*")) box.append(make("em", "", shownText(part.slice(1, -1))));
    else if (part) box.append(shownText(part));
  }
  return box;
}

function writeBlock(lines) {
  const heading = lines.length === 1 && lines[0].match(/^(#{1,4}) +(.+)$/);
  if (heading) return writeInline(make("p", "text-heading"), heading[2]);
  if (lines.every((line) => /^\s*([-*+]|\d+[.)]) +/.test(line))) {
    const list = make(/^\s*\d/.test(lines[0]) ? "ol" : "ul", "text-list");
    for (const line of lines) {
      const [, mark, rest] = line.match(/^\s*([-*+]|\d+[.)]) +(.*)$/);
      list.append(writeInline(make("li", "", make("span", "muted", /\d/.test(mark) ? `${mark} ` : "• ")), rest));
    }
    return list;
  }
  return writeInline(make("p"), lines.join("\n"));
}

function renderText(text) {
  const found = [];
  for (const [index, part] of text.split(/^```[^\n]*\n?/m).entries()) {
    if (index % 2) { found.push(make("pre", "code wrap", shownText(part.replace(/\n$/, "")))); continue; }
    let lines = [];
    for (const line of [...part.split(/\r?\n/), ""]) {
      const alone = /^#{1,4} /.test(line);
      if ((!line.trim() || alone) && lines.length) { found.push(writeBlock(lines)); lines = []; }
      if (alone) found.push(writeBlock([line]));
      else if (line.trim()) lines.push(line);
    }
  }
  return found;
}

// ---- panels

function turns(answer) {
  const said = (answer.turns || []).filter(([, text]) => text);
  return said.length > 1 ? said : [["", answer.text]];
}

/* Long thinking before an answer can be folded, in all panels alike. */
function makeThinkingFold(text) {
  const found = text.match(/^\s*<think>([^]*?)<\/think>/);
  if (!found || found[1].length < FOLDED) return renderText(text);
  const fold = make("details", "fold thinking", make("summary", "", `Thinking, ${found[1].split(/\s+/).filter(Boolean).length} words `, makeKeyHint("thinking", "f")), make("div", "turn-text muted", ...renderText(found[1])));
  fold.open = view.thinking;
  fold.firstChild.addEventListener("click", (event) => {
    event.preventDefault();
    const panel = fold.closest(".answer-panel");
    toggleView("thinking"); // makes the panels anew
    panel.querySelector(".thinking > summary").focus();
  });
  return [fold, ...renderText(text.slice(found[0].length))];
}

function nodes(answer) {
  return turns(answer).map(([role, text]) => {
    const box = make("div", "turn", role ? make("span", "role", role) : null);
    const words = make("div", "turn-text");
    words.append(...(view.plain || view.spaces ? [shownText(text)] : makeThinkingFold(text)));
    box.append(words);
    return box;
  });
}

/* One answer in a panel: {element, bar, text(spans, side)}; text(null) shows it as it is, text(spans, "before") its side of a diff. */
function makeAnswer(one, name) {
  const text = make("div", "answer-text");
  text.tabIndex = 0;
  text.setAttribute("role", "group");
  text.setAttribute("aria-label", `${name}, text`);
  const bar = make("header", "answer-bar", make("h3", "", name));
  if (one.about) bar.append(about(one.about));
  const element = make("section", "answer-panel", bar, text);
  element.setAttribute("aria-label", name);
  let diff = null;
  function draw() {
    text.classList.toggle("mono", view.plain || view.spaces || Boolean(diff));
    if (diff) text.replaceChildren(...makeDiffNodes(diff.spans, diff.side, shownText));
    else if (one.text.trim() || turns(one).length > 1 || (one.text && view.spaces)) text.replaceChildren(...nodes(one));
    else text.replaceChildren(make("span", "muted", one.text ? "White space only; Spaces shows it." : "The answer is empty."));
  }
  element.redraw = draw;
  draw();
  return { element, bar, text(spans, side) { diff = spans ? { spans, side } : null; draw(); } };
}

function about({ run, step, reward, url }) {
  const line = make("span", "about muted small");
  const words = [run === null || run === undefined ? "" : `run #${run}`, step === null || step === undefined ? "" : `step ${step}`, reward === null || reward === undefined ? "" : `reward ${Number(reward).toPrecision(3)}`].filter(Boolean).join(" · ");
  if (!url || !String(url).startsWith("/")) { line.textContent = words; return line; }
  const link = make("a", "", words);
  link.href = url;
  line.append(link);
  return line;
}

/* The prompt by role, the reference answer where it may be seen. */
function makePrompt(claim) {
  const box = make("section", "ask card");
  box.setAttribute("aria-label", "Prompt");
  const messages = claim.prompt || [];
  const long = messages.reduce((sum, [, text]) => sum + text.length, 0) > LONG || messages.reduce((sum, [, text]) => sum + text.split("\n").length, 0) > LINES;
  const text = make("div", "ask-text", ...messages.map(([role, said]) => make("div", "prompt-message", make("span", "role", role), make("span", "prompt-text", tokenOverlays.visible(said, false)))));
  box.append(text);
  if (claim.reference) text.append(make("div", "prompt-message", make("span", "role", "reference"), make("span", "prompt-text reference", tokenOverlays.visible(claim.reference, false))));
  if (long) {
    box.classList.add("folded");
    text.tabIndex = 0;
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "Prompt, text");
    const more = make("button", "button quiet small", "Show the whole prompt");
    more.type = "button";
    more.setAttribute("aria-expanded", "false");
    more.addEventListener("click", () => {
      const open = !box.classList.toggle("folded");
      more.setAttribute("aria-expanded", String(open));
      more.textContent = open ? "Fold the prompt" : "Show the whole prompt";
    });
    box.append(more);
  }
  return box;
}

// ---- how all panels are shown

function setView(name, on) {
  view[name] = on;
  store.keep("view", view, `lab-labels-${page.person}-`);
  for (const root of page.roots()) for (const panel of root.querySelectorAll(".answer-panel")) panel.redraw?.();
  markViewButtons();
}

function markViewButtons() {
  for (const button of document.querySelectorAll("[data-view]")) button.setAttribute("aria-pressed", String(view[button.dataset.view]));
}

const words = { plain: ["Plain text", "Text with headings, lists and code"], spaces: ["White space is shown", "White space is not shown"], thinking: ["Thinking is shown", "Thinking is folded"], lock: ["Panels scroll together", "Panels scroll apart"] };
function toggleView(name) { setView(name, !view[name]); announce(words[name][view[name] ? 0 : 1]); }

document.addEventListener("click", (event) => { const button = event.target.closest("[data-view]"); if (button) toggleView(button.dataset.view); });

/* Every panel at the same share of its way: texts differ in length. */
let led = null;
document.addEventListener("scroll", (event) => {
  const leader = event.target;
  if (!view.lock || !leader.classList?.contains("answer-text") || (led && led !== leader)) return;
  led = leader;
  const share = leader.scrollTop / Math.max(1, leader.scrollHeight - leader.clientHeight);
  for (const other of leader.closest("[data-stage]").querySelectorAll(".answer-text")) if (other !== leader) other.scrollTop = share * (other.scrollHeight - other.clientHeight);
  clearTimeout(leader.timer);
  leader.timer = setTimeout(() => { led = null; }, 120);
}, true);

const listKeys = () => [
  { id: "plain", key: "p", label: "Plain text or with headings, lists and code", run: () => toggleView("plain") },
  { id: "spaces", key: "v", label: "Show white space", run: () => toggleView("spaces") },
  { id: "thinking", key: "f", label: "Fold or show long thinking", run: () => toggleView("thinking") },
  { id: "lock", key: "l", label: "Scroll the panels together", run: () => toggleView("lock") },
];

export const answerPanels = { prompt: makePrompt, answer: makeAnswer, keys: listKeys, mark: markViewButtons, shownText };
