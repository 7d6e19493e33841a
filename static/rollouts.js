/* The rollouts tab: steps, following, the pill for what came meanwhile, and the token view over the whole feed. */
"use strict";
(function () {
  const root = document.getElementById("rollouts");
  if (!root) return;

  let view = feed().dataset.view;
  let fresh = 0; // rollouts that came since the feed was read
  let busy = false;
  let again = false;

  function feed() { return document.getElementById("feed"); }

  function query(changes) {
    const asked = new URLSearchParams(feed().dataset.query);
    if (feed().dataset.following === "1") asked.delete("step");
    asked.delete("after");
    for (const [name, value] of Object.entries(changes)) {
      if (value === "" || value === null) asked.delete(name);
      else asked.set(name, value);
    }
    if (view) asked.set("tokens", view);
    else asked.delete("tokens");
    return asked.size ? `?${asked}` : "";
  }

  /* Swaps the feed for another selection; the address follows, so that it can be shared and reloaded. */
  async function show(search, { push = true } = {}) {
    if (busy) { again = search; return; }
    busy = true;
    const asked = new URLSearchParams(search);
    asked.set("part", "feed");
    try {
      await htmx.ajax("GET", `${root.dataset.url}?${asked}`, { target: "#feed", swap: "outerHTML" });
      if (push) history.replaceState(null, "", root.dataset.url + search);
      fresh = 0;
      await dress();
      lab.announce(`Step ${feed().dataset.step}, ${feed().dataset.total} rollouts`);
    } finally {
      busy = false;
      if (again !== false) { const next = again; again = false; show(next, { push }); }
    }
  }

  root.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-feed], a[data-token-view]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0) {
      event.preventDefault();
      if (link.matches("[data-token-view]")) setView(link.dataset.tokenView);
      else show(withView(link.getAttribute("href")));
    }
    if (event.target.closest("#feed-pill")) show(query({ step: "" }));
    const all = event.target.closest("[data-show-all]");
    if (all) showAll(all);
    const tokens = event.target.closest("[data-all-tokens]");
    if (tokens) allTokens(tokens);
  });

  function withView(search) {
    const asked = new URLSearchParams(search);
    if (view) asked.set("tokens", view);
    else asked.delete("tokens");
    return asked.size ? `?${asked}` : "";
  }

  root.addEventListener("submit", (event) => {
    if (!event.target.matches("#stepper")) return;
    event.preventDefault();
    const wanted = event.submitter && event.submitter.name === "step" ? event.submitter.value : document.getElementById("step-number").value;
    show(query({ step: wanted }));
  });

  /* The nearest step that has rollouts. */
  function snap(step) {
    const steps = feed().dataset.steps ? feed().dataset.steps.split(",").map(Number) : [];
    return steps.length ? steps.reduce((best, one) => (Math.abs(one - step) < Math.abs(best - step) ? one : best)) : step;
  }

  let sliding = 0;
  root.addEventListener("input", (event) => {
    if (event.target.id !== "step-slider") return;
    const step = snap(Number(event.target.value));
    document.getElementById("step-number").value = step;
    clearTimeout(sliding);
    sliding = setTimeout(() => show(query({ step })).then(() => document.getElementById("step-slider")?.focus()), 150);
  });

  root.addEventListener("change", (event) => {
    if (event.target.id === "step-number" && event.target.value !== "") show(query({ step: event.target.value }));
    if (event.target.id === "feed-sort") show(withView(event.target.value));
    if (event.target.id === "show-whitespace") lab.tokens.showWhitespace(event.target.checked);
  });

  window.addEventListener("popstate", () => show(location.search, { push: false }));

  async function showAll(button) {
    const article = button.closest("[data-rollout]");
    button.disabled = true;
    const response = await fetch(`${article.dataset.tokens}?part=text`);
    if (!response.ok) { button.disabled = false; lab.toast("The text could not be loaded. Try again.", "error"); return; }
    const fragment = new DOMParser().parseFromString(await response.text(), "text/html"); // scripts of a parsed document never run
    article.querySelector("[data-plain]").replaceChildren(...document.adoptNode(fragment.body).childNodes);
    button.closest("[data-cut]").remove();
  }

  async function allTokens(button) {
    const article = button.closest("[data-rollout]");
    button.disabled = true;
    const response = await fetch(article.dataset.tokens);
    if (!response.ok) { button.disabled = false; return; }
    lab.tokens.build(article, await response.json());
    colour();
  }

  async function setView(name) {
    view = name;
    history.replaceState(null, "", root.dataset.url + query({ step: feed().dataset.following === "1" ? "" : feed().dataset.step }));
    for (const link of root.querySelectorAll("[data-token-view]")) {
      if (link.dataset.tokenView === name) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    await dress();
  }

  /* Puts the chosen token view on every card, fetching the tokens of those that have none yet in one request. */
  async function dress() {
    const articles = [...root.querySelectorAll("[data-rollout]")];
    lab.tokens.hideCard();
    if (view) {
      const missing = articles.filter((article) => !lab.tokens.has(article));
      for (let start = 0; start < missing.length; start += 64) {
        const part = missing.slice(start, start + 64);
        const response = await fetch(`${root.dataset.tokensUrl}?ids=${part.map((article) => article.dataset.rollout).join(",")}`);
        if (!response.ok) { lab.toast("The tokens could not be loaded. Choose the view again to retry.", "error"); return; }
        const found = new Map((await response.json()).rollouts.map((one) => [String(one.id), one]));
        for (const article of part) lab.tokens.build(article, found.get(article.dataset.rollout) || { error: "This rollout came without tokens." });
      }
    }
    for (const article of articles) {
      article.querySelector("[data-plain]").hidden = Boolean(view);
      const units = article.querySelector("[data-units]");
      units.hidden = !view;
      for (const name of lab.tokens.views) units.classList.toggle(`view-${name}`, view === name);
      const cut = article.querySelector("[data-cut]");
      if (cut) cut.hidden = Boolean(view);
    }
    colour();
  }

  function colour() {
    const legend = document.getElementById("token-legend");
    if (!legend) return;
    if (!view) { legend.hidden = true; return; }
    lab.tokens.legend(legend, view, lab.tokens.colour([...root.querySelectorAll("[data-rollout]")], view));
  }

  document.addEventListener("htmx:afterSwap", (event) => { if (root.contains(event.target) && event.target.id !== "feed" && !busy) dress(); });

  /* Nothing moves under somebody who reads: the feed follows only while its top is in view and nothing in it is in use. */
  function undisturbed() {
    const top = feed().getBoundingClientRect().top;
    const using = root.contains(document.activeElement) && document.activeElement.closest(".cards, #stepper, select");
    return top > -40 && !using && !root.querySelector(".group:hover, details[open]") && !String(getSelection());
  }

  let lastShow = 0;
  function arrived(count) {
    fresh += count;
    if (document.hidden) return;
    const follows = feed().dataset.following === "1" && (undisturbed() || !feed().dataset.step);
    if (follows && !busy && Date.now() - lastShow > 900) {
      lastShow = Date.now();
      show(query({ step: "" }), { push: false });
    } else showPill();
  }

  function showPill() {
    const pill = document.getElementById("feed-pill");
    if (!pill || !fresh) return;
    pill.hidden = false;
    const words = `${fresh} new`;
    if (pill.textContent !== words) pill.textContent = words;
  }

  setInterval(() => { if (fresh && !document.hidden && feed().dataset.following === "1") arrived(0); }, 1000);
  lab.live.on("delta", (delta) => { if (delta.rollouts && delta.rollouts.count) arrived(delta.rollouts.count); });
  lab.live.on("reset", () => (feed().dataset.following === "1" ? show(query({ step: "" }), { push: false }) : showPill()));
  dress();
})();
