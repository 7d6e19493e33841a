/* The strength of a steering vector: slider and number say the same, the address holds vector and strength, and the vector's own is offered first. */
import { announce } from "../base/page.js";

const box = document.querySelector("[data-steer]");
const chooser = box.querySelector("[data-steer-vector]"); // none where the vector is given
const strength = box.querySelector("[data-steer-strength]");
const slider = strength.querySelector("[data-steer-slider]");
const number = strength.querySelector("[data-steer-number]");
const reset = strength.querySelector("[data-steer-reset]");

function keepInAddress() {
  if (!chooser) return; // of a sampling the address is the sampling's
  const asked = new URLSearchParams(location.search);
  for (const [name, value] of [["vector", chooser.value], ["alpha", chooser.value && number.value]]) {
    if (value) asked.set(name, value);
    else asked.delete(name);
  }
  const query = asked.toString();
  history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
}

function showStrength() {
  slider.value = number.value; // beyond its ends it stays there, and the number says how much
  reset.disabled = Number(number.value) === 0;
  if (chooser) strength.hidden = !chooser.value;
}

function setStrength(value) {
  number.value = value;
  showStrength();
  keepInAddress();
}

slider.addEventListener("input", () => setStrength(slider.value));
number.addEventListener("input", () => { showStrength(); keepInAddress(); });
reset.addEventListener("click", () => { setStrength("0"); number.focus(); announce("Strength 0: nothing is added"); });
if (chooser) {
  chooser.addEventListener("change", () => {
    const own = chooser.selectedOptions[0].dataset.alpha;
    if (own) setStrength(own);
    else { showStrength(); keepInAddress(); }
  });
  const asked = new URLSearchParams(location.search);
  if (chooser.value && (asked.has("vector") || asked.has("steer")) && !asked.has("alpha")) number.value = chooser.selectedOptions[0].dataset.alpha;
}
slider.hidden = reset.hidden = false;
showStrength();
