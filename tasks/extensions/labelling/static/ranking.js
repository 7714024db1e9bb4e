// A ranking as text, `D > G > A = B`, and as tiers, [["D"], ["G"], ["A", "B"]]: best first, those of one tier tie.

export function format(tiers) {
  return tiers.map((tier) => tier.join(" = ")).join(" > ");
}

// The tiers of a text. What is missing or wrong is `fault`, in words; `tiers` has what could be read so far.
export function parse(text, letters) {
  const tiers = [];
  const known = new Map(letters.map((letter) => [letter.toUpperCase(), letter]));
  const found = new Set();
  for (const part of text.split(">")) {
    const tier = [];
    for (const name of part.split("=").map((one) => one.trim().toUpperCase())) {
      if (name === "") {
        if (text.trim() === "") return { tiers, fault: `Rank all answers: ${letters.join(", ")}.` };
        return { tiers: tier.length ? [...tiers, tier] : tiers, fault: "A letter is missing beside > or =." };
      }
      if (!known.has(name)) return { tiers, fault: `${name}: there are the answers ${letters.join(", ")}.` };
      if (found.has(name)) return { tiers, fault: `${name} is there twice.` };
      found.add(name);
      tier.push(known.get(name));
    }
    tiers.push(tier);
  }
  const missing = letters.filter((letter) => !found.has(letter));
  return { tiers, fault: missing.length ? `Still to rank: ${missing.join(", ")}.` : "" };
}

// The rank of each letter, 1 best; those of one tier share a rank.
export function ranks(tiers, letters) {
  return letters.map((letter) => tiers.findIndex((tier) => tier.includes(letter)) + 1);
}

// The tiers with a letter one step up (-1) or down (+1): out of a tie into a tier of its own, or from there into the next tier.
export function moved(tiers, letter, step) {
  const place = tiers.findIndex((tier) => tier.includes(letter));
  const without = tiers.map((tier) => tier.filter((one) => one !== letter));
  if (place < 0) return step < 0 ? [...tiers, [letter]] : tiers;
  if (tiers[place].length > 1) {
    without.splice(step < 0 ? place : place + 1, 0, [letter]);
    return without;
  }
  const next = place + step;
  if (next < 0 || next >= tiers.length) return tiers;
  without[next] = [...without[next], letter];
  return without.filter((tier) => tier.length);
}

// The tiers with a letter put into the tier at `place`, or, with `between`, into a tier of its own before it.
export function put(tiers, letter, place, between) {
  const without = tiers.map((tier) => tier.filter((one) => one !== letter));
  if (between) without.splice(place, 0, [letter]);
  else without[place] = [...without[place], letter];
  return without.filter((tier) => tier.length);
}
