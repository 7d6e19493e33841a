/* One rollout from lab/rollouts/trajectories/packed_rollout.py: text, arrays, and units: stretches of text with the tokens that made them. No DOM here. */
import { tokenOverlays } from "./tokens.js";

const { SPECIAL, ENVIRONMENT, TORN } = tokenOverlays;
const OTHERS = ["environment", "given"]; // kinds of blocks that the policy did not write
const LOOSE = 2000; // characters of a unit where no tokens account for the text
const KINDS = { e: Uint16Array, f: Float32Array, H: Uint16Array, I: Uint32Array, B: Uint8Array };

let halves = null; // float16 by its bits

function decodeHalves(bits) {
  if (!halves) {
    halves = new Float32Array(65536);
    for (let index = 0; index < 65536; index += 1) {
      const [sign, power, rest] = [index >> 15 ? -1 : 1, (index >> 10) & 31, index & 1023];
      halves[index] = power === 31 ? (rest ? NaN : sign * Infinity) : sign * (power ? 2 ** (power - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
    }
  }
  return Float32Array.from(bits, (one) => halves[one]);
}

export function readRollout(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const body = 4 + length;
  const array = (name) => {
    if (!(name in header.arrays)) return null;
    const [kind, offset, count] = header.arrays[name];
    const values = new KINDS[kind](buffer, body + offset, count);
    return kind === "e" ? decodeHalves(values) : values;
  };
  const none = new Float32Array(header.total).fill(NaN);
  const data = {
    header, total: header.total, error: header.error, reasons: header.reasons,
    text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(buffer, body + header.text[1], header.text[2])),
    ids: array("ids") || new Uint32Array(0), widths: array("widths") || new Uint16Array(0),
    logprobs: array("logprobs") || none, entropies: array("entropies") || none, mask: array("mask"),
    advantages: array("token_advantages"), weights: array("weights"), reference: array("reference_logprobs"), ratios: array("ratios"), clipped: array("clipped"), sampler: array("sampler_logprobs"),
    alternatives: header.alternatives && { ...header.alternatives, ids: array("alternative_ids"), logprobs: array("alternative_logprobs"), ranks: array("ranks") },
    alternatives_missing: header.alternatives_missing,
  };
  data.units = buildUnits(data);
  data.unitOf = new Uint32Array(data.total);
  data.units.forEach((unit, index) => data.unitOf.fill(index, unit[1], unit[1] + unit[2]));
  return data;
}

/* As lab/rollouts/trajectories/tokens.py: [text, first token, token count, flags, start in the text]. */
function buildUnits(data) {
  const { text, widths, ids, header } = data;
  const found = [];
  const theirs = markEnvironment(header, data.total);
  let [at, first] = [0, 0];
  for (let index = 0; index < widths.length; index += 1) {
    const width = widths[index];
    const name = width ? undefined : header.special[ids[index]];
    if (!width && name === undefined) continue;
    const flag = theirs[index] ? ENVIRONMENT : 0;
    if (!width) {
      if (first < index) found.push(["", first, index - first, TORN | flag, at]);
      found.push([name, index, 1, SPECIAL | flag, at]);
    } else {
      found.push([text.slice(at, at + width), first, index + 1 - first, flag, at]);
      at += width;
    }
    first = index + 1;
  }
  if (first < widths.length) found.push(["", first, widths.length - first, TORN, at]);
  while (at < text.length) { // text that no token accounts for is shown all the same
    const block = header.blocks.find((one) => one[3] > at); // [kind, label, start, end]: a unit lies in one block
    let end = Math.min(text.length, at + LOOSE, block ? block[3] : Infinity);
    if (end < text.length && (text.charCodeAt(end) & 0xfc00) === 0xdc00) end += 1;
    found.push([text.slice(at, end), data.total, 0, block && OTHERS.includes(block[0]) ? ENVIRONMENT : 0, at]);
    at = end;
  }
  return found;
}

function markEnvironment(header, total) {
  const theirs = new Uint8Array(total);
  for (const [role, start, end] of header.turns) if (role !== "assistant") theirs.fill(1, Math.max(0, start), Math.max(0, end));
  return theirs;
}

export function findUnitEnd(unit) { return unit[4] + (unit[3] & SPECIAL ? 0 : unit[0].length); }

/* The index of the unit that holds a place in the text. */
export function findUnitAt(data, place) {
  let [low, high] = [0, data.units.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (findUnitEnd(data.units[middle]) <= place) low = middle + 1;
    else high = middle;
  }
  return low;
}

/* Whether any of a unit's tokens is in the loss; text without tokens is neither in nor out. */
export function isInLoss(data, unit) {
  if (!data.mask || !unit[2]) return true;
  for (let index = unit[1]; index < unit[1] + unit[2]; index += 1) if (data.mask[index]) return true;
  return false;
}

/* "3rd of 40" of a value among the policy's tokens, the largest first; ties share the better rank. */
export function describeRank(data, values, index) {
  if (!values || tokenOverlays.missing(values[index])) return "n/a";
  let [above, count] = [0, 0];
  for (let other = 0; other < data.total; other += 1) {
    if ((data.mask && !data.mask[other]) || tokenOverlays.missing(values[other])) continue;
    count += 1;
    if (values[other] > values[index]) above += 1;
  }
  return data.mask && !data.mask[index] ? "n/a" : `${above + 1} of ${count}`;
}

/* The tokens of the policy with the largest values, largest first. */
export function findLargest(data, values, count) {
  const chosen = [];
  for (let index = 0; values && index < data.total; index += 1) {
    const value = values[index];
    if (tokenOverlays.missing(value) || !(value > 0) || (data.mask && !data.mask[index])) continue;
    if (chosen.length === count && value <= values[chosen[count - 1]]) continue;
    let place = chosen.length;
    while (place && values[chosen[place - 1]] < value) place -= 1;
    chosen.splice(place, 0, index);
    if (chosen.length > count) chosen.pop();
  }
  return chosen;
}
