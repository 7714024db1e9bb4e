"use strict";
// The report's page: answers side by side, to filter. Everything is read from the page itself; text becomes text nodes only.

const read = id => {
  const found = document.getElementById(id);
  return found ? JSON.parse(found.textContent) : null;
};

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};

const select = (label, options, chosen, change) => {
  const box = make("select", {"aria-label": label, onchange: () => change(box.value)});
  for (const [value, text] of options) box.append(make("option", {value}, text));
  box.value = chosen;
  return make("label", {}, label + " ", box);
};

const answerBox = (name, answer, note = "") => {
  const [text, right, ended, points] = answer;
  const said = [right === null ? "" : right ? "right" : "wrong", points === null ? "" : `${points}/10`, note];
  const verdict = make("span", right === null ? {} : {class: right ? "right" : "wrong"}, said.filter(Boolean).join(" · "));
  return make("div", {class: "answer"}, make("header", {}, make("b", {}, name), verdict),
    make("pre", {}, text + (ended ? "" : " […]")));
};

const sideBySide = (data, place) => {
  const SHOWN = 10; // problems at a time
  const base = data.policies.indexOf(data.baseline);
  const others = data.policies.filter(name => name !== data.baseline);
  const graded = data.problems.some(({answers}) => answers[base] && answers[base][1] !== null);
  const kinds = graded
    ? {gained: "gained", lost: "lost", changed: "gained or lost", right: "right for both", wrong: "wrong for both", all: "all problems"}
    : {differs: "other answers", all: "all problems"};
  const state = {policy: others.length ? others[others.length - 1] : data.baseline, kind: Object.keys(kinds)[0], words: "", shown: SHOWN, everyone: false};
  const belongs = (kind, before, after) => ({
    gained: !before[1] && after[1], lost: before[1] && !after[1], changed: before[1] !== after[1],
    right: before[1] && after[1], wrong: !before[1] && !after[1], differs: before[0] !== after[0], all: true,
  })[kind];
  const list = make("div"), count = make("p", {class: "note", role: "status"});
  const matching = () => {
    const own = data.policies.indexOf(state.policy), words = state.words.toLowerCase();
    return data.problems.filter(problem => {
      const [before, after] = [problem.answers[base], problem.answers[own]];
      const text = [problem.id, problem.question, after && after[0]].join("\n").toLowerCase();
      return before && after && belongs(state.kind, before, after) && text.includes(words);
    });
  };
  const card = problem => {
    const boxes = make("div", {class: "answers"});
    if (problem.solution) boxes.append(make("div", {class: "answer"}, make("header", {}, make("b", {}, "reference")), make("pre", {}, problem.solution)));
    data.policies.forEach((name, number) => {
      const wanted = state.everyone || name === data.baseline || name === state.policy;
      if (wanted && problem.answers[number]) boxes.append(answerBox(name, problem.answers[number]));
    });
    return make("section", {class: "sample"}, make("h3", {}, problem.id), make("p", {}, problem.question), boxes);
  };
  const draw = () => {
    const found = matching(), shown = found.slice(0, state.shown);
    const of = data.problems.length === data.all ? `${data.all}` : `${data.problems.length} of ${data.all}`;
    count.textContent = `${found.length} of ${of} problems: ${state.policy} against ${data.baseline}, ${kinds[state.kind]}.`;
    list.replaceChildren(...shown.map(card));
    if (found.length > shown.length) list.append(make("button", {onclick: () => { state.shown += SHOWN; draw(); }}, `Show ${Math.min(SHOWN, found.length - shown.length)} more`));
  };
  const set = name => value => { state[name] = value; state.shown = SHOWN; draw(); };
  const search = make("input", {type: "search", placeholder: "words of the problem or answer", "aria-label": "Find words", oninput: () => set("words")(search.value)});
  const everyone = make("input", {type: "checkbox", onchange: () => set("everyone")(everyone.checked)});
  const tools = make("div", {class: "tools"},
    select("Policy", (others.length ? others : [data.baseline]).map(name => [name, name]), state.policy, set("policy")),
    select("Show", Object.entries(kinds), state.kind, set("kind")),
    search, make("label", {}, everyone, " all policies"));
  place.replaceChildren(tools, count, list);
  draw();
};

const answers = read("answers-data");
if (answers) sideBySide(answers, document.getElementById("side-by-side"));
