// The ranking as letters in tiers, to be dragged or moved by keys, and as text beside it; each follows the other.

import { format, moved, parse, put, ranks } from "./ranking.js";

const STARTS = 6; // pixels that a pointer moves before it drags

export function rank(root, say) {
  const letters = [...root.querySelectorAll(".answer")].map((answer) => answer.dataset.letter);
  const field = root.querySelector("#ranking");
  const board = root.querySelector("#tiers");
  let tiers = [];
  let tie = false; // the next number ties with the last tier

  function read() {
    const found = parse(field.value, letters);
    tiers = found.tiers;
    root.querySelector("#ranking-fault").textContent = found.fault;
    draw();
    return found;
  }

  function take(changed, focused) {
    field.value = format(changed);
    read();
    board.querySelector(`[data-letter="${focused}"]`)?.focus();
    say(field.value || "Nothing is ranked.");
  }

  function draw() {
    const ranked = new Set(tiers.flat());
    const rows = tiers.flatMap((tier, place) => [row("gap", place, []), row("tier", place, tier)]);
    const open = letters.filter((letter) => !ranked.has(letter));
    board.replaceChildren(...rows, row("gap", tiers.length, []), ...(open.length ? [row("open", -1, open)] : []));
    for (const answer of root.querySelectorAll(".answer")) {
      const place = tiers.findIndex((tier) => tier.includes(answer.dataset.letter));
      answer.querySelector("h2").dataset.rank = place < 0 ? "" : `rank ${place + 1}`;
    }
  }

  function row(kind, place, tier) {
    const made = document.createElement("li");
    made.className = kind;
    made.dataset.place = place;
    if (kind === "gap") made.setAttribute("aria-hidden", "true");
    else made.append(caption(kind === "tier" ? `${place + 1}.` : "not ranked"), ...tier.map(chip));
    return made;
  }

  function caption(text) {
    const made = document.createElement("span");
    made.className = "note";
    made.textContent = text;
    return made;
  }

  function chip(letter) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "chip";
    made.textContent = letter;
    made.dataset.letter = letter;
    made.setAttribute("aria-label", `Answer ${letter}; the arrow keys move it`);
    made.addEventListener("keydown", (event) => {
      const step = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      take(moved(tiers, letter, step), letter);
    });
    made.addEventListener("pointerdown", (event) => drag(event, made, letter));
    return made;
  }

  function drag(begun, made, letter) {
    let dragging = false;
    made.setPointerCapture(begun.pointerId);
    const under = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest("#tiers > li");
    made.onpointermove = (event) => {
      const [across, down] = [event.clientX - begun.clientX, event.clientY - begun.clientY];
      dragging ||= Math.hypot(across, down) > STARTS;
      if (!dragging) return;
      made.classList.add("dragged");
      made.style.transform = `translate(${across}px, ${down}px)`;
      for (const row of board.children) row.classList.toggle("over", row === under(event));
    };
    made.onpointerup = (event) => {
      const target = dragging ? under(event) : null;
      made.onpointermove = made.onpointerup = null;
      if (!dragging) return;
      if (!target) draw();
      else if (target.className.includes("open")) take(tiers.map((tier) => tier.filter((one) => one !== letter)).filter((tier) => tier.length), letter);
      else take(put(tiers, letter, Number(target.dataset.place), target.className.includes("gap")), letter);
    };
    made.onpointercancel = draw;
  }

  function key(pressed, number) {
    const ranked = tiers.flat();
    if (pressed === "Backspace") {
      const last = tiers.at(-1) ?? [];
      tie = false;
      take([...tiers.slice(0, -1), last.slice(0, -1)].filter((tier) => tier.length));
    } else if (pressed === "=" || pressed === ">") tie = pressed === "=" && ranked.length > 0;
    else if (number && letters[number - 1] && !ranked.includes(letters[number - 1])) {
      take(tie ? put(tiers, letters[number - 1], tiers.length - 1, false) : [...tiers, [letters[number - 1]]]);
      tie = false;
    } else return false;
    return true;
  }

  field.addEventListener("input", read);
  read();
  return {
    key,
    value() {
      const { tiers: found, fault } = read();
      return fault ? { fault } : { ranks: ranks(found, letters) };
    },
  };
}
