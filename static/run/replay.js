/* What-if replay. The question: Enter adds the typed method. The answer: the tokens of members that come into view, coloured by their effective
   advantage on one scale for both sides, with a mark where the sign is another. Model text goes into text nodes only. */
import { formatNumber } from "../base/numbers.js";
import { bindListKeys } from "../base/list-keys.js";
import { announce, showToast } from "../base/page.js";
import { tokenOverlays } from "../rollouts/tokens.js";

const form = document.querySelector("form[data-ask]");
const root = document.getElementById("replay");
if (form) startQuestion();
if (root && root.querySelector("[data-member]")) startAnswer();

function startQuestion() {
  form.addEventListener("keydown", (event) => {
    const add = event.target.dataset.add;
    if (event.key !== "Enter" || !add) return;
    event.preventDefault();
    document.getElementById(add).click();
  });
  form.addEventListener("htmx:afterSettle", () => {
    const composer = form.querySelector("[data-composer][data-said]");
    if (!composer) return;
    announce(composer.dataset.said);
    delete composer.dataset.said;
  });
  /* The address follows what is chosen, so that it can be shared before it is asked. */
  form.addEventListener("change", (event) => {
    if (!["step", "group"].includes(event.target.name)) return;
    const asked = new URLSearchParams(location.search);
    if (event.target.name === "step") asked.delete("group");
    for (const name of ["step", "group"]) {
      const { value } = form.elements[name];
      if (value && !(event.target.name === "step" && name === "group")) asked.set(name, value);
      else if (!value) asked.delete(name);
    }
    history.replaceState(null, "", `${location.pathname}${asked.size ? `?${asked}` : ""}`);
  });
}

function startAnswer() {
  const LEVELS = 10; // classes level-0 … level-9 of tokens.css
  const SPECIAL = 1;
  const TORN = 4;
  const AT_ONCE = 16;
  const members = [...root.querySelectorAll("[data-member]")];
  const known = new Map(); // id → tokens
  const waiting = new Set();
  let timer = 0;

  const make = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const signed = (value) => (value === null ? "n/a" : `${value > 0 ? "+" : value < 0 ? "\u2212" : ""}${formatNumber(Math.abs(value))}`);

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { waiting.add(entry.target.dataset.member); seen.unobserve(entry.target); }
    clearTimeout(timer);
    if (waiting.size) timer = setTimeout(load, 60);
  }, { rootMargin: "600px" });
  for (const member of members) seen.observe(member);

  async function load() {
    const ids = [...waiting].slice(0, AT_ONCE);
    for (const id of ids) waiting.delete(id);
    const response = await fetch(`${root.dataset.tokensUrl}?ids=${ids.join(",")}`).catch(() => null);
    if (!response || !response.ok) { showToast("The tokens could not be loaded. Reload the page to try again.", "error"); return; }
    for (const one of (await response.json()).rollouts) known.set(String(one.id), one);
    for (const id of ids) if (known.has(id)) build(root.querySelector(`[data-member="${CSS.escape(id)}"]`), known.get(id));
    colour();
    if (waiting.size) load();
  }

  function build(member, data) {
    if (data.error) { member.querySelector("[data-flips]").replaceChildren(data.error); member.querySelector("[data-flips]").hidden = false; return; }
    for (const side of ["before", "after"]) {
      const nodes = data.units.map((unit, index) => {
        const [text, first, count, flags] = unit;
        const span = make("span", { className: "unit", textContent: flags & TORN ? `⟨${count} broken ${count === 1 ? "piece" : "pieces"}⟩` : tokenOverlays.visible(text, false) });
        span.dataset.place = index;
        if (flags & SPECIAL) span.classList.add("special");
        const tokens = Array.from({ length: count }, (_, place) => first + place);
        if (tokens.length && !tokens.some((token) => data.mask[token])) span.classList.add("out");
        if (tokens.some((token) => data.flips[token])) span.classList.add("flipped");
        return span;
      });
      nodes.forEach((span, index) => {
        if (!span.classList.contains("flipped")) return;
        if (!nodes[index - 1]?.classList.contains("flipped")) span.classList.add("flip-first");
        if (!nodes[index + 1]?.classList.contains("flipped")) span.classList.add("flip-last");
      });
      const box = member.querySelector(`[data-side="${side}"]`);
      box.replaceChildren(...nodes);
      if (data.shown < data.total) box.append(make("span", { className: "muted", textContent: ` … the first ${data.shown} of ${data.total} tokens` }));
    }
    listFlips(member.querySelector("[data-flips]"), data);
  }

  function listFlips(box, data) {
    if (!data.flipped.length) return;
    const rest = data.flipped_kinds - data.flipped.length;
    box.replaceChildren(make("span", { className: "muted", textContent: "⇄ pushed the other way:" }), ...data.flipped.map(([text, count]) =>
      make("span", {}, make("span", { className: "mono", textContent: tokenOverlays.visible(text, true) }), count > 1 ? ` × ${count}` : "")));
    if (rest > 0) box.append(make("span", { className: "muted", textContent: `and ${rest} more` }));
    box.hidden = false;
  }

  function largest(unit, values) {
    let found = null;
    for (let place = unit[1]; place < unit[1] + unit[2]; place += 1) if (values[place] !== null && (found === null || Math.abs(values[place]) > Math.abs(found))) found = values[place];
    return found;
  }

  /* One scale for all that is loaded and for both sides: from 0 to the largest size. */
  function colour() {
    let top = 0;
    for (const data of known.values()) if (!data.error) for (const values of [data.before, data.after]) values.forEach((value, place) => { if (value !== null && data.mask[place]) top = Math.max(top, Math.abs(value)); });
    top = top || 1;
    for (const member of members) {
      const data = known.get(member.dataset.member);
      if (!data || data.error) continue;
      for (const side of ["before", "after"]) {
        for (const span of member.querySelectorAll(`[data-side="${side}"] [data-place]`)) {
          const value = span.classList.contains("out") ? null : largest(data.units[span.dataset.place], data[side]);
          span.classList.remove("negative", ...Array.from({ length: LEVELS }, (_, level) => `level-${level}`));
          if (value !== null) span.classList.add(`level-${Math.min(LEVELS - 1, Math.floor((Math.abs(value) / top) * LEVELS))}`);
          if (value < 0) span.classList.add("negative");
        }
      }
    }
    legend(top);
  }

  function legend(top) {
    const ramp = make("span", { className: "ramp view-advantage" });
    for (let level = -LEVELS + 1; level < LEVELS; level += 1) ramp.append(make("span", { className: `unit level-${Math.abs(level)}${level < 0 ? " negative" : ""}` }));
    ramp.setAttribute("aria-hidden", "true");
    document.getElementById("replay-legend").replaceChildren(make("span", { className: "muted", textContent: "advantage × weight" }), signed(-top), ramp, signed(top), make("span", { className: "muted", textContent: "underlined: pushed down · ⇄ framed: another sign" }));
  }

  /* The hover card, and the same token on the other side. */
  const card = document.getElementById("replay-card");
  function leave() {
    card.hidden = true;
    for (const span of root.querySelectorAll(".unit.active")) span.classList.remove("active");
  }
  root.addEventListener("pointerover", (event) => {
    leave();
    const span = event.target.closest("[data-place]");
    if (!span) return;
    const member = span.closest("[data-member]");
    const data = known.get(member.dataset.member);
    const unit = data.units[span.dataset.place];
    for (const other of member.querySelectorAll(`[data-place="${span.dataset.place}"]`)) other.classList.add("active");
    const place = unit[2] > 1 ? `${unit[1]} to ${unit[1] + unit[2] - 1}` : `${unit[1]}`;
    const rows = [["token", place], ["trained", signed(largest(unit, data.before))], ["what if", signed(largest(unit, data.after))]];
    if (span.classList.contains("flipped")) rows.push(["sign", "another"]);
    if (span.classList.contains("out")) rows.push(["loss", "not in the loss"]);
    card.replaceChildren(make("dl", {}, ...rows.flatMap(([term, text]) => [make("dt", { textContent: term }), make("dd", { textContent: text })])));
    card.hidden = false;
    const at = span.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8));
    const below = at.bottom + 6 + card.offsetHeight < innerHeight;
    card.style.setProperty("transform", `translate(${left}px, ${below ? at.bottom + 6 : at.top - card.offsetHeight - 6}px)`);
  });
  root.addEventListener("pointerleave", leave);
  addEventListener("scroll", leave, { passive: true });

  let at = -1;
  bindListKeys({
    items: () => members,
    next: ["j", "Next rollout"],
    before: ["k", "Previous rollout"],
    findCurrent: () => members[at], // also when something between the rollouts has the focus
    findFirst: (all) => all[0],
    show(member) {
      at = members.indexOf(member);
      member.focus({ preventScroll: true });
      member.scrollIntoView({ block: "start" });
    },
    open: (member) => member.querySelector("[data-open]").click(),
  });
  root.addEventListener("focusin", (event) => { const member = event.target.closest("[data-member]"); if (member) at = members.indexOf(member); });
  root.addEventListener("change", (event) => { if (event.target.matches("[data-goes]")) location.assign(event.target.value); });
}
