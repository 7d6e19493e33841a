/* Coloured tokens: units from the server become spans by textContent; colour classes by how far a value lies along the feed's ramp. */
"use strict";
(function () {
  const LEVELS = 10; // classes level-0 … level-9 of run.css
  const none = (data) => data.ids.map(() => null);
  const VIEWS = {
    entropy: { title: "Entropy", help: "of the distribution the token was drawn from", unit: " nats", values: (data) => data.entropies },
    logprob: { title: "Surprise (−log-probability)", help: "of the sampled token", unit: " nats", values: (data) => data.logprobs.map((value) => (value === null ? null : -value)) },
    weight: { title: "Token weight", help: "what the methods multiply the token's policy gradient by; uncoloured: 1 for all", unit: "", values: (data) => data.weights || none(data) },
    advantage: { title: "Token advantage", help: "where a method gives tokens their own; uncoloured: the rollout's for all", unit: "", signed: true, values: (data) => data.advantages || none(data) },
  };
  const SPECIAL = 1;
  const ENVIRONMENT = 2;
  const TORN = 4;
  const INVISIBLE = /[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\ufff9-\ufffc\u{e0000}-\u{e0fff}]/gu;
  const SPACES = /[ \n\t\r]/g;

  const known = new WeakMap(); // card element → its data
  const card = document.getElementById("token-card");
  let whitespace = false;

  /* Invisible characters by their code point; white space as glyphs when asked. */
  function visible(text, spaces) {
    const named = text.replace(INVISIBLE, (character) => ("\n\t\r".includes(character) ? character : `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`));
    return spaces ? named.replace(SPACES, (character) => ({ " ": "·", "\n": "↵\n", "\t": "→\t", "\r": "␍" })[character]) : named;
  }

  /* The value a unit is coloured by: of several tokens that make one character the largest, whatever its sign. */
  function unitValue(unit, values) {
    let largest = null;
    for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) {
      const value = values[index];
      if (value !== null && value !== undefined && (largest === null || Math.abs(value) > Math.abs(largest))) largest = value;
    }
    return largest;
  }

  function percentile(values, share) {
    if (!values.length) return 0;
    const sorted = values.slice().sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  }

  function build(article, data) {
    const box = article.querySelector("[data-units]");
    known.set(article, data);
    if (data.error) {
      box.replaceChildren(Object.assign(document.createElement("span"), { className: "muted", textContent: data.error }));
      return;
    }
    const nodes = document.createDocumentFragment();
    data.units.forEach((unit, index) => {
      const span = document.createElement("span");
      span.className = "unit";
      if (unit[3] & SPECIAL) span.classList.add("special");
      if (unit[3] & ENVIRONMENT || masked(data, unit)) span.classList.add("out");
      span.dataset.unit = index;
      nodes.append(span);
    });
    if (data.shown < data.total) {
      const more = Object.assign(document.createElement("button"), { className: "button small", type: "button", textContent: `Show all ${data.total} tokens` });
      more.dataset.allTokens = "";
      nodes.append(more);
    }
    box.replaceChildren(nodes);
    write(article);
  }

  function masked(data, unit) {
    for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) if (data.mask[index]) return false;
    return unit[2] > 0;
  }

  function write(article) {
    const data = known.get(article);
    if (!data || data.error) return;
    for (const span of article.querySelectorAll("[data-unit]")) {
      const unit = data.units[span.dataset.unit];
      if (unit[3] & SPECIAL) { span.textContent = unit[0]; span.hidden = !whitespace; }
      else if (unit[3] & TORN) span.textContent = `⟨${unit[2]} broken ${unit[2] === 1 ? "piece" : "pieces"}⟩`;
      else span.textContent = visible(unit[0], whitespace);
    }
  }

  /* Colours all cards on one scale from zero to the 98th percentile of the policy's tokens on the page; returns the scale's end. */
  function colour(articles, view) {
    const { values } = VIEWS[view];
    const all = [];
    const measured = articles.filter((article) => known.has(article) && !known.get(article).error).map((article) => [article, known.get(article), values(known.get(article))]);
    for (const [, data, numbers] of measured) numbers.forEach((value, index) => { if (value !== null && data.mask[index]) all.push(Math.abs(value)); });
    const top = percentile(all, 0.98) || 1;
    for (const [article, data, numbers] of measured) {
      for (const span of article.querySelectorAll("[data-unit]")) {
        const unit = data.units[span.dataset.unit];
        const value = span.classList.contains("out") ? null : unitValue(unit, numbers);
        const level = value === null ? "" : ` level-${Math.min(LEVELS - 1, Math.floor((Math.abs(value) / top) * LEVELS))}${value < 0 ? " negative" : ""}`;
        const wanted = `${span.className.replace(/ level-\d( negative)?/, "")}${level}`;
        if (span.className !== wanted) span.className = wanted;
      }
    }
    return top;
  }

  function legend(box, view, top) {
    const { title, help, unit, signed } = VIEWS[view];
    const ramp = document.createElement("span");
    ramp.className = `ramp view-${view}`;
    ramp.setAttribute("aria-hidden", "true");
    for (let level = signed ? -LEVELS + 1 : 0; level < LEVELS; level += 1) ramp.append(Object.assign(document.createElement("span"), { className: `unit level-${Math.abs(level)}${level < 0 ? " negative" : ""}` }));
    const words = (text, name = "") => Object.assign(document.createElement("span"), { className: name, textContent: text });
    const spaces = Object.assign(document.createElement("label"), { className: "check" });
    const tick = Object.assign(document.createElement("input"), { type: "checkbox", checked: whitespace, id: "show-whitespace" });
    spaces.append(tick, " White space and special tokens");
    box.replaceChildren(words(title, "legend-title"), words(help, "muted"), words(signed ? `−${lab.number(top)}` : "0"), ramp, words(`${lab.number(top)}+${unit}`), words("98th percentile of this page", "muted"), words("dimmed: not in the loss", "unit out"), spaces);
    box.hidden = false;
  }

  function showCard(span) {
    const article = span.closest("[data-rollout]");
    const data = known.get(article);
    const unit = data.units[span.dataset.unit];
    const rows = document.createElement("dl");
    const add = (term, text) => rows.append(Object.assign(document.createElement("dt"), { textContent: term }), Object.assign(document.createElement("dd"), { textContent: text }));
    add("token", unit[3] & TORN ? "bytes that never became a character" : visible(unit[0], true) || "(empty)");
    if (unit[2] > 1) add("pieces", `${unit[2]} tokens make it`);
    for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) {
      const logprob = data.logprobs[index];
      add("id", `${data.ids[index]}  (position ${index})`);
      add("log-probability", logprob === null ? "n/a" : `${lab.number(logprob)} nats`);
      add("probability", logprob === null ? "n/a" : percent(Math.exp(logprob)));
      add("entropy", data.entropies[index] === null ? "n/a" : `${lab.number(data.entropies[index])} nats`);
      if (data.weights) add("weight", data.weights[index] === null ? "n/a" : lab.number(data.weights[index]));
      if (data.advantages) add("advantage", data.advantages[index] === null ? "n/a" : lab.number(data.advantages[index]));
      add("in the loss", data.mask[index] ? "yes" : "no");
    }
    card.replaceChildren(rows);
    card.hidden = false;
    const at = span.getClientRects()[0] || span.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8));
    const below = at.bottom + 6 + card.offsetHeight < innerHeight;
    card.style.transform = `translate(${left}px, ${below ? at.bottom + 6 : Math.max(8, at.top - card.offsetHeight - 6)}px)`;
  }

  function percent(share) { return share >= 0.0001 ? `${(share * 100).toFixed(share > 0.1 ? 1 : 2)} %` : share.toExponential(1); }

  function hideCard() { card.hidden = true; }

  function move(box, by) {
    const spans = [...box.querySelectorAll("[data-unit]:not([hidden])")];
    const current = spans.findIndex((span) => span.classList.contains("active"));
    const next = spans[Math.min(spans.length - 1, Math.max(0, current + by))];
    if (!next) return;
    if (current >= 0) spans[current].classList.remove("active");
    next.classList.add("active");
    next.scrollIntoView({ block: "nearest" });
    showCard(next);
  }

  document.addEventListener("mouseover", (event) => {
    const span = event.target.closest && event.target.closest("[data-unit]");
    if (span) showCard(span);
    else if (!event.target.closest?.("#token-card")) hideCard();
  });
  document.addEventListener("scroll", hideCard, { passive: true });
  document.addEventListener("focusin", (event) => { if (event.target.matches("[data-units]")) move(event.target, 0); });
  document.addEventListener("focusout", (event) => {
    if (!event.target.matches("[data-units]")) return;
    event.target.querySelector(".active")?.classList.remove("active");
    hideCard();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideCard();
    if (!event.target.matches?.("[data-units]")) return;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -1e9, End: 1e9 }[event.key];
    if (!by) return;
    event.preventDefault();
    move(event.target, by);
  });

  lab.tokens = { views: Object.keys(VIEWS), build, colour, legend, hideCard, has: (article) => known.has(article), showWhitespace(shown) { whitespace = shown; for (const article of document.querySelectorAll("[data-rollout]")) write(article); } };
})();
