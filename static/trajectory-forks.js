/* The tokens at which the policy was least certain, to jump through: where another choice would have led elsewhere. */
"use strict";
(function () {
  const MOST = 20;
  const CONTEXT = 18; // characters before and after

  const list = document.getElementById("forks");
  if (!list) return;
  let forks = [];

  function fill(data) {
    forks = lab.rollout.largest(data, data.entropies, MOST);
    const rows = forks.map((position) => {
      const unit = data.units[data.unitOf[position]];
      const button = document.createElement("button");
      button.type = "button";
      button.className = "fork";
      button.dataset.position = position;
      const words = (className, text) => Object.assign(document.createElement("span"), { className, textContent: text });
      const plain = (text) => lab.overlays.visible(text, false).replace(/\s+/g, " ");
      const text = document.createElement("span");
      text.className = "fork-text";
      text.append(plain(data.text.slice(Math.max(0, unit[4] - CONTEXT), unit[4])));
      text.append(words("fork-token", lab.overlays.visible(unit[0], true).replace(/\n/g, "") || "␀"));
      const end = lab.rollout.endOf(unit);
      text.append(plain(data.text.slice(end, end + CONTEXT)));
      const logprob = data.logprobs[position];
      button.append(text, words("num", lab.number(data.entropies[position])), words("num", Number.isNaN(logprob) ? "n/a" : lab.overlays.percent(Math.exp(logprob))), words("num muted", String(position)));
      const item = document.createElement("li");
      item.append(button);
      return item;
    });
    list.replaceChildren(...rows);
    document.getElementById("forks-section").hidden = !rows.length;
  }

  list.addEventListener("click", (event) => {
    const button = event.target.closest("[data-position]");
    if (button) lab.reader.pin(Number(button.dataset.position), { scroll: true });
  });

  /* Goes to the next of them in the text, around its ends. */
  function jump(by) {
    const places = [...forks].sort((a, b) => a - b);
    if (!places.length) { lab.toast("No entropies were stored with this rollout.", "info", 3); return; }
    const here = lab.reader.state.token ?? (by > 0 ? -1 : Infinity);
    const next = by > 0 ? places.find((one) => one > here) ?? places[0] : places.findLast((one) => one < here) ?? places[places.length - 1];
    lab.reader.pin(next, { scroll: true });
    lab.announce(`Token ${next}, number ${forks.indexOf(next) + 1} by entropy`);
  }

  lab.key("e", "Next of the most uncertain tokens", () => jump(1));
  lab.key("E", "The one before", () => jump(-1));

  lab.forks = { fill };
})();
