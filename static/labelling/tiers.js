/* The order somebody gives to n answers, ties allowed: lab.labelling.tiers(n). An answer has a rank, 1 for the best, or none yet. Ranks may have gaps
   while one is still ranking (3 for the first answer, 1 for the next); what is read has none. Every move returns whether anything changed. */
export function makeTiers(count) {
  const ranks = Array(count).fill(null);
  const places = [...ranks.keys()];
  const levels = () => [...new Set(ranks.filter((rank) => rank !== null))].sort((one, other) => one - other);
  const mates = (place) => places.filter((other) => other !== place && ranks[other] !== null && ranks[other] === ranks[place]);
  const read = () => levels().map((level) => places.filter((place) => ranks[place] === level));
  const unranked = () => places.filter((place) => ranks[place] === null);
  const order = () => [...read().flat(), ...unranked()];

  function put(place, rank) {
    if (ranks[place] === rank) return false;
    ranks[place] = rank;
    return true;
  }

  /* A tier of its own at ``rank``; whoever is there or below goes down by one where there is no gap. */
  function alone(place, rank) {
    let full = rank;
    while (places.some((other) => other !== place && ranks[other] === full)) full += 1;
    for (const other of places) if (other !== place && ranks[other] !== null && ranks[other] >= rank && ranks[other] < full) ranks[other] += 1;
    ranks[place] = rank;
    return true;
  }

  const worst = () => Math.max(0, ...levels());

  function up(place) {
    const all = levels();
    if (ranks[place] === null) return put(place, worst() || 1);
    const at = all.indexOf(ranks[place]);
    if (at > 0) return put(place, all[at - 1]);
    return mates(place).length ? alone(place, all[0]) : false;
  }

  function down(place) {
    const all = levels();
    if (ranks[place] === null) return false;
    const at = all.indexOf(ranks[place]);
    if (at < all.length - 1) return put(place, all[at + 1]);
    return mates(place).length ? put(place, worst() + 1) : false;
  }

  /* With the answer that stands right above it. */
  function tie(place) {
    const all = order();
    const above = all[all.indexOf(place) - 1];
    return above !== undefined && ranks[above] !== null ? put(place, ranks[above]) : false;
  }

  /* Right below those it was tied with; an answer without a tier gets one below all. */
  function untie(place) {
    if (ranks[place] === null) return put(place, worst() + 1);
    return mates(place).length ? alone(place, ranks[place] + 1) : false;
  }

  function best(place) {
    if (ranks[place] !== null && ranks[place] === levels()[0] && !mates(place).length) return false;
    return alone(place, 1);
  }

  /* Closes the gaps. */
  function tighten() {
    const all = levels();
    ranks.forEach((rank, place) => { if (rank !== null) ranks[place] = all.indexOf(rank) + 1; });
  }

  /* How many pairs of a better and a worse answer it gives: none inside a tier. */
  function pairs() {
    const sizes = read().map((tier) => tier.length);
    return sizes.reduce((sum, size, at) => sum + size * sizes.slice(at + 1).reduce((below, other) => below + other, 0), 0);
  }

  /* Takes [[place, …], …], best first, or ranks with gaps; anything else counts as nothing. */
  function fill(given, gaps) {
    ranks.fill(null);
    if (Array.isArray(gaps) && gaps.length === count && gaps.every((rank) => rank === null || (Number.isInteger(rank) && rank > 0 && rank < 1000))) { gaps.forEach((rank, place) => { ranks[place] = rank; }); return; }
    if (!Array.isArray(given)) return;
    given.forEach((tier, at) => { for (const place of Array.isArray(tier) ? tier : []) if (Number.isInteger(place) && place in ranks) ranks[place] = at + 1; });
  }

  return { read, unranked, order, pairs, fill, tighten, alone, lowest: worst, set: put, up, down, tie, untie, best, rank: (place) => ranks[place], ranks: () => [...ranks] };
}
