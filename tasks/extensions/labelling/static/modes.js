// What each mode of judging does beside the page: its keys, and the value that its fields hold or what is missing in it.
// `attach` prepares a new item; `value` gives { value } or { fault }; `key` says whether it used the key.

import { rank } from "./board.js";

const digit = (event) => (/^[0-9]$/.test(event.key) ? Number(event.key) : null);
const checked = (within) => within.querySelector("input:checked")?.value ?? null;

function choose(input) {
  input.checked = true;
  input.focus();
}

const pairwise = {
  attach() {},
  value(root) {
    const strength = checked(root.querySelector(".verdicts"));
    return strength === null ? { fault: "Choose a verdict first." } : { value: { strength } };
  },
  key(root, event) {
    const inputs = [...root.querySelectorAll(".verdicts input")];
    const wanted = inputs.find((input) => input.dataset.key === event.key);
    if (wanted) choose(wanted);
    else if (event.key.startsWith("Arrow") && event.target.type !== "radio") {
      const step = event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 1;
      const middle = inputs.findIndex((input) => input.value === "tie");
      const now = inputs.findIndex((input) => input.checked);
      choose(inputs[Math.min(Math.max((now < 0 ? middle : now) + step, 0), inputs.length - 1)]);
    } else return false;
    return true;
  },
};

const ranking = {
  attach(root, say) {
    ranking.board = rank(root, say);
    for (const input of root.querySelectorAll(".scores input")) {
      input.addEventListener("click", () => {
        if (input.dataset.was) input.checked = false; // a second click takes the score away
        for (const other of input.closest("fieldset").querySelectorAll("input")) delete other.dataset.was;
        if (input.checked) input.dataset.was = "yes";
      });
      if (input.checked) input.dataset.was = "yes";
    }
  },
  value(root) {
    const { ranks, fault } = ranking.board.value();
    if (fault) return { fault };
    const scores = [];
    for (const answer of root.querySelectorAll(".answer")) {
      const found = [...answer.querySelectorAll(".scores fieldset")].map((one) => [one.dataset.criterion, checked(one)]);
      const missing = found.filter(([, score]) => score === null).map(([criterion]) => criterion);
      if (missing.length && missing.length < found.length) {
        return { fault: `Score answer ${answer.dataset.letter} on ${missing.join(" and ")} too, or on nothing.` };
      }
      scores.push(missing.length ? null : Object.fromEntries(found.map(([name, score]) => [name, Number(score)])));
    }
    return { value: { ranks, scores: scores.some((one) => one) ? scores : null } };
  },
  key(root, event) {
    if (event.key === "/") root.querySelector("#ranking").focus();
    else if (event.target.closest(".scores") && digit(event) !== null) {
      const input = [...event.target.closest("fieldset").querySelectorAll("input")][digit(event) - 1];
      if (input) input.click();
    } else return ranking.board.key(event.key, digit(event));
    return true;
  },
};

const steps = {
  attach(root) {
    const rows = steps.rows(root);
    rows.forEach((row, place) => {
      row.addEventListener("focusin", () => steps.go(root, place));
      row.addEventListener("click", () => steps.go(root, place));
    });
    steps.go(root, Math.max(steps.open(steps.labels(root)), 0));
  },
  rows: (root) => [...root.querySelectorAll(".steps > li")],
  go(root, place) {
    steps.rows(root).forEach((row, other) => {
      row.toggleAttribute("aria-current", other === place);
      if (other === place) row.setAttribute("aria-current", "step");
    });
  },
  labels: (root) => steps.rows(root).map((row) => (checked(row) === null ? null : Number(checked(row)))),
  open(labels) {
    const bad = labels.indexOf(-1); // behind it, steps may stay open
    return labels.slice(0, bad < 0 ? labels.length : bad).indexOf(null);
  },
  value(root) {
    const labels = steps.labels(root);
    const open = steps.open(labels);
    return open >= 0 ? { fault: `Step ${open + 1} is still open.` } : { value: { labels } };
  },
  key(root, event) {
    const rows = steps.rows(root);
    const now = rows.findIndex((row) => row.hasAttribute("aria-current"));
    const input = rows[now]?.querySelector(`input[data-key="${CSS.escape(event.key)}"]`);
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key] ?? (input ? 1 : 0);
    if (!step) return false;
    if (input) input.checked = true;
    const next = Math.min(Math.max(now + step, 0), rows.length - 1);
    const target = rows[next].querySelector("input:checked") ?? rows[next].querySelector("input");
    target.focus();
    rows[next].scrollIntoView({ block: "nearest" });
    return true;
  },
};

const edit = {
  attach(root) {
    const field = root.querySelector("textarea");
    for (const button of root.querySelectorAll("button.start")) {
      button.addEventListener("click", () => {
        const raw = button.closest(".answer")?.querySelector(".raw").textContent ?? "";
        field.value = raw;
        field.dataset.from = button.dataset.place;
        field.dispatchEvent(new Event("change"));
        field.focus();
      });
    }
  },
  value(root) {
    const field = root.querySelector("textarea");
    const from = field.dataset.from === "" ? null : Number(field.dataset.from);
    if (!field.value.trim()) return { fault: "Write the better answer first." };
    return { value: { text: field.value, from } };
  },
  key(root, event) {
    const button = root.querySelector(`button.start[data-key="${CSS.escape(event.key)}"]`);
    if (button) button.click();
    else if (event.key === "/") root.querySelector("textarea").focus();
    else return false;
    return true;
  },
};

export const modes = { pairwise, ranking, steps, edit };
