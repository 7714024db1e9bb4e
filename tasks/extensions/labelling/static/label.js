// The page of a person who judges: it shows what the server sends, and sends what the person says until the server has it on disk.

import { modes } from "./modes.js";

const PENDING = "label-pending-"; // judgements that the server has not confirmed, in the browser's own store
const PERSON = "label-person";
const LONGEST_WAIT = 5000; // milliseconds between two tries

const by = (id) => document.getElementById(id);
const root = by("item");
const clock = { spent: 0, since: 0 }; // milliseconds in which the item could be seen
let person = "";
let told = {};
let busy = false;

function say(text) {
  by("status").textContent = text;
}

function trouble(text) {
  by("trouble").textContent = text;
  by("trouble").hidden = text === "";
}

function fault(text) {
  by("fault").textContent = text;
}

function seen() {
  return clock.spent + (clock.since ? performance.now() - clock.since : 0);
}

// Half a character, such as the rest of an emoji that was cut off, is no text that can be kept.
function whole(_, value) {
  return typeof value === "string" ? (value.toWellFormed?.() ?? value) : value;
}

function pauseOrGoOn() {
  clock.spent = seen();
  clock.since = document.hidden ? 0 : performance.now();
}

// What the server will not do however often it is asked. With another token the judgement stays to be sent.
class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.final = status !== 403;
  }
}

// Ask the server, again and again while it cannot be reached or cannot write.
async function ask(path, body) {
  let wait = 500;
  for (let again = false; ; again = true) {
    let answer = null;
    try {
      answer = await fetch(path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(path === "/skip" ? { ...body, again } : body, whole),
        signal: AbortSignal.timeout(20000),
      });
      if (answer.ok) {
        const found = await answer.json();
        trouble("");
        return found;
      }
    } catch {
      answer = null; // the server is away, or was killed on the way
    }
    if (answer && answer.status < 500) throw new Refusal(answer.status, await reason(answer));
    const why = answer ? ` (${await reason(answer)})` : "";
    trouble(`Not saved, trying again${why} …`);
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(2 * wait, LONGEST_WAIT);
  }
}

async function reason(answer) {
  const text = await answer.text().catch(() => "");
  try {
    return JSON.parse(text).fault ?? text;
  } catch {
    return text.trim() || `${answer.status}`;
  }
}

// One call at a time; what the server refuses is said, and the next item is shown.
async function exchange(path, body, saved) {
  if (busy) return;
  working(true);
  let refused = null;
  const found = await ask(path, body).catch((error) => {
    refused = error;
    return error.final && path !== "/next" ? ask("/next", { person }).catch(() => null) : null;
  });
  if (path === "/judge" && refused?.final !== false) localStorage.removeItem(PENDING + body.judgement);
  if (found && "html" in found) show(found, refused ? "" : saved);
  else if (found) say(saved);
  working(false);
  fault(refused?.message ?? "");
}

function working(now) {
  busy = now;
  for (const button of document.querySelectorAll("footer button")) button.disabled = now;
  root.setAttribute("aria-busy", String(now));
  if (!now) by("undo").disabled = !told.undo;
}

function show(found, saved) {
  told = found;
  root.innerHTML = found.html; // made by the server; the page's policy lets nothing in it act
  fault("");
  const { done, wanted } = found.pipeline ?? found;
  by("bar").max = Math.max(wanted, 1);
  by("bar").value = done;
  by("progress").textContent = progress(found);
  document.querySelector("footer").hidden = false;
  for (const button of document.querySelectorAll("footer button")) button.hidden = !found.mode && button.id !== "undo";
  clock.spent = 0;
  clock.since = document.hidden ? 0 : performance.now();
  if (found.mode) {
    modes[found.mode].attach(root, say);
    keepDraft(found);
  }
  scrollTo(0, 0);
  root.focus({ preventScroll: true });
  say(`${saved} ${progress(found)}`.trim());
}

function progress({ done, wanted, seconds_left: left, pipeline }) {
  if (pipeline && pipeline.done >= pipeline.wanted) {
    const more = wanted - done;
    return `${number(pipeline.wanted)} are enough${more ? `; ${number(more)} more can be judged` : ""}`;
  }
  if (pipeline) return `${count(pipeline)} that the pipeline waits for${time(pipeline.seconds_left)}`;
  return wanted ? count({ done, wanted }) + time(done < wanted && left, " left") : "";
}

function count({ done, wanted }) {
  return `${number(done)} of ${number(wanted)}`;
}

function number(value) {
  return value.toLocaleString("en");
}

function time(seconds, word = "") {
  return seconds ? `, about ${Math.ceil(seconds / 60)} min${word}` : "";
}

// A better answer that is being written outlives a reload.
function keepDraft({ item }) {
  const field = root.querySelector("textarea");
  if (!field) return;
  const name = `label-draft-${person}-${item}`;
  const kept = JSON.parse(localStorage.getItem(name) ?? "null");
  if (kept && !field.value) {
    field.value = kept.text;
    field.dataset.from = kept.from;
  }
  const keep = () => localStorage.setItem(name, JSON.stringify({ text: field.value, from: field.dataset.from }));
  field.addEventListener("input", keep);
  field.addEventListener("change", keep);
}

function submit() {
  if (busy || !told.mode) return;
  const { value, fault: wrong } = modes[told.mode].value(root);
  fault(wrong ?? "");
  if (wrong) return;
  const { judgement, item } = told;
  const body = { judgement, person, item, value, seconds: seen() / 1000 };
  localStorage.setItem(PENDING + judgement, JSON.stringify(body));
  localStorage.removeItem(`label-draft-${person}-${item}`);
  exchange("/judge", body, "Saved.");
}

function flag() {
  const dialog = by("flagging");
  by("reason").value = "";
  dialog.onclose = () => {
    const { item } = told;
    if (dialog.returnValue === "ok") exchange("/flag", { person, item, reason: by("reason").value.trim() }, "Flagged.");
  };
  open(dialog);
}

function name() {
  const dialog = by("naming");
  by("name").value = person;
  dialog.onclose = () => {
    if (dialog.returnValue === "ok") begin(by("name").value.trim());
    else if (!person) name();
  };
  open(dialog);
}

function open(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
}

const actions = {
  u: () => told.undo && exchange("/undo", { person, judgement: told.undo }, "Taken back."),
  s: () => told.mode && exchange("/skip", { person, item: told.item }, "Skipped."),
  f: () => told.mode && flag(),
  r: () => {
    const raw = document.body.classList.toggle("as-text");
    by("raw").setAttribute("aria-pressed", String(raw));
    say(raw ? "Shown as it was written." : "Shown as it reads.");
  },
  g: () => open(by("guidelines")),
  "?": () => open(by("keys")),
  Enter: submit,
};

function pressed(event) {
  const field = event.target.closest("textarea, input:not([type=radio])");
  if (document.querySelector("dialog[open]") || event.isComposing) return;
  if (field && event.key === "Escape") field.blur();
  if (event.key === "Enter" && (field?.id === "ranking" || (field && (event.ctrlKey || event.metaKey)))) submit();
  if (field || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target.closest("button, a, summary")) return;
  if (told.mode && !busy && modes[told.mode].key(root, event)) event.preventDefault();
  else if (actions[event.key]) {
    event.preventDefault();
    if (!busy) actions[event.key]();
  }
}

function clicked(event) {
  const button = event.target.closest("button");
  if (button?.value === "cancel") button.closest("dialog").close();
  else if (button?.closest("header, footer") && actions[button.dataset.key] && !busy) actions[button.dataset.key]();
}

// What was not confirmed before a reload is sent first, whoever said it.
async function begin(whose) {
  if (!/^[\p{L}\p{N}_ .@-]{1,64}$/u.test(whose)) {
    by("naming-fault").textContent = "Up to 64 letters, digits, spaces and . @ - _";
    return name();
  }
  by("naming-fault").textContent = "";
  person = whose;
  localStorage.setItem(PERSON, person);
  by("who").textContent = person;
  by("who").setAttribute("aria-label", `${person}: change the name`);
  by("who").hidden = false;
  for (const key of Object.keys(localStorage).filter((one) => one.startsWith(PENDING))) {
    const refused = await ask("/judge", JSON.parse(localStorage.getItem(key))).then(() => null, (error) => error);
    if (refused) trouble(refused.message);
    if (refused?.final !== false) localStorage.removeItem(key);
  }
  exchange("/next", { person }, "");
}

function start() {
  const address = new URL(location.href);
  const named = address.searchParams.get("person");
  address.searchParams.delete("token"); // a cookie has it now; the address may be shown on a screen
  history.replaceState(null, "", address);
  document.addEventListener("keydown", pressed);
  document.addEventListener("click", clicked);
  document.addEventListener("visibilitychange", pauseOrGoOn);
  by("who").addEventListener("click", name);
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.querySelector("form")?.addEventListener("submit", (event) => {
      event.preventDefault();
      dialog.close("ok");
    });
  }
  const known = named ?? localStorage.getItem(PERSON);
  if (known) begin(known);
  else name();
}

start();
