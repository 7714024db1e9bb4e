// A suite's page: all answers, of which a window is in the page at a time.

const WINDOW = 50; // problems at a time
const [ID, QUESTION, GOLD, LEVEL, SUBJECT, CHOICES, READABLE, ANSWERS] = [0, 1, 2, 3, 4, 5, 6, 7];
const [TEXT, EXTRACTED, RIGHT, ENDED, LENGTH, METHODS, SAMPLES] = [0, 1, 2, 3, 4, 5, 6];
const data = read("answer-data");

const reward = data.methods.indexOf("verifiable reward");

const kinds = {
  all: ["all answers", () => true],
  right: ["right", after => after[RIGHT]],
  wrong: ["wrong", after => !after[RIGHT]],
  gained: ["gained: the baseline is wrong", (after, before) => before && after[RIGHT] && !before[RIGHT]],
  lost: ["lost: the baseline is right", (after, before) => before && !after[RIGHT] && before[RIGHT]],
  reward: ["the verifiable reward judges otherwise", after => (after[METHODS][reward] === "1") !== Boolean(after[RIGHT])],
  apart: ["ways to find the answer disagree", after => new Set(after[METHODS]).size > 1],
  nothing: ["no answer found", after => !after[EXTRACTED]],
  open: ["cut off at the length limit", after => !after[ENDED]],
};
const share = problem => {
  const given = problem[ANSWERS].filter(Boolean);
  return given.reduce((sum, one) => sum + (one[SAMPLES] ?? one[RIGHT]), 0) / given.length;
};
const orders = {
  file: ["as in the suite", () => 0],
  hardest: ["hardest first", (a, b) => share(a) - share(b)],
  easiest: ["easiest first", (a, b) => share(b) - share(a)],
  longest: ["longest answer first", (a, b, own) => (b[ANSWERS][own]?.[LENGTH] ?? -1) - (a[ANSWERS][own]?.[LENGTH] ?? -1)],
  level: ["by level", (a, b) => a[LEVEL].localeCompare(b[LEVEL], "en", {numeric: true})],
  subject: ["by subject", (a, b) => a[SUBJECT].localeCompare(b[SUBJECT], "en")],
};

const answerBox = (name, answer) => {
  const verdict = make("span", {class: answer[RIGHT] ? "right" : "wrong"}, answer[RIGHT] ? "right" : "wrong");
  const methods = data.methods.map((method, place) => `${method} ${answer[METHODS][place] === "1" ? "right" : "wrong"}`);
  const said = [`answer found: ${answer[EXTRACTED] || "none"}`, `${answer[LENGTH]} tokens`];
  if (answer[SAMPLES] !== null) said.push(`${(100 * answer[SAMPLES]).toFixed(0)} % of the samples are right`);
  if (methods.length) said.push(methods.join(", "));
  return make("div", {class: "answer"}, make("header", {}, make("b", {}, name), verdict),
    make("pre", {}, answer[TEXT] + (answer[ENDED] ? "" : " […]")), make("small", {}, said.join(" · ")));
};

const row = problem => {
  const marks = make("span", {class: "marks"});
  data.policies.forEach((name, place) => {
    const answer = problem[ANSWERS][place];
    if (!answer) return;
    const mark = make("span", {class: answer[RIGHT] ? "right" : "wrong", title: name}, answer[RIGHT] ? "✓" : "✗");
    marks.append(mark, " ");
  });
  const about = [problem[LEVEL] && `level ${problem[LEVEL]}`, problem[SUBJECT]].filter(Boolean).join(", ");
  const asked = make("span", {class: "asked"}, problem[QUESTION].slice(0, 160));
  const found = make("details", {class: "row"}, make("summary", {}, marks, asked, make("small", {}, [problem[ID], about].filter(Boolean).join(" · "))));
  found.addEventListener("toggle", () => {
    if (!found.open || found.children.length > 1) return;
    const gold = problem[GOLD] + (problem[READABLE] ? "" : " (the scoring cannot read it)");
    const boxes = make("div", {class: "answers"}, make("div", {class: "answer"}, make("header", {}, make("b", {}, "reference")), make("pre", {}, gold)));
    data.policies.forEach((name, place) => { if (problem[ANSWERS][place]) boxes.append(answerBox(name, problem[ANSWERS][place])); });
    const choices = make("ul", {class: "choices"}, ...problem[CHOICES].map(text => make("li", {}, text)));
    found.append(make("p", {}, problem[QUESTION]), ...(problem[CHOICES].length ? [choices] : []), boxes);
  });
  return found;
};

const state = {policy: String(data.policies.length - 1), kind: "all", order: "file", level: "", subject: "", words: "", shown: WINDOW};
const list = make("div"), count = make("p", {class: "note", role: "status"});

const matching = () => {
  const own = Number(state.policy), words = state.words.toLowerCase(), keep = kinds[state.kind][1];
  const found = data.problems.filter(problem => {
    const [after, before] = [problem[ANSWERS][own], problem[ANSWERS][data.baseline]];
    if (!after || !keep(after, before)) return false;
    if (state.level && problem[LEVEL] !== state.level) return false;
    if (state.subject && problem[SUBJECT] !== state.subject) return false;
    return !words || [problem[ID], problem[QUESTION], problem[GOLD], after[TEXT]].join("\n").toLowerCase().includes(words);
  });
  return state.order === "file" ? found : found.sort((a, b) => orders[state.order][1](a, b, own));
};

const draw = () => {
  const found = matching(), shown = found.slice(0, state.shown);
  count.textContent = `${found.length} of ${data.problems.length} problems: ${data.policies[state.policy]}, ${kinds[state.kind][0]}.`;
  list.replaceChildren(...shown.map(row));
  if (found.length > shown.length) list.append(make("button", {onclick: () => { state.shown += WINDOW; draw(); }}, `Show ${Math.min(WINDOW, found.length - shown.length)} more`));
};

const set = name => value => { state[name] = value; state.shown = WINDOW; draw(); };
const several = place => {
  const values = [...new Set(data.problems.map(problem => problem[place]))].sort((a, b) => a.localeCompare(b, "en", {numeric: true}));
  return values.length > 1 ? [["", "all"], ...values.filter(Boolean).map(value => [value, value])] : null;
};
const hint = "words of the problem or answer";
const search = make("input", {type: "search", placeholder: hint, size: hint.length, "aria-label": "Find words", oninput: () => set("words")(search.value)});
const tools = make("div", {class: "tools"}, select("Policy", data.policies.map((name, place) => [String(place), name]), state.policy, set("policy")));
const compared = data.policies.length > 1;
const offered = Object.entries(kinds).filter(([name]) => (compared || !["gained", "lost"].includes(name)) && (reward >= 0 || name !== "reward")).map(([name, [text]]) => [name, text]);
tools.append(select("Show", offered, state.kind, set("kind")));
for (const [label, place] of [["Level", LEVEL], ["Subject", SUBJECT]]) {
  const options = several(place);
  if (options) tools.append(select(label, options, "", set(label.toLowerCase())));
}
tools.append(select("Sort", Object.entries(orders).map(([name, [text]]) => [name, text]), state.order, set("order")), search);
document.getElementById("answer-list").replaceChildren(tools, count, list);
draw();
