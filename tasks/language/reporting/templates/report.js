// The report's page: answers side by side, to filter.

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
  const hint = "words of the problem or answer";
  const search = make("input", {type: "search", placeholder: hint, size: hint.length, "aria-label": "Find words", oninput: () => set("words")(search.value)});
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

// The microscope: trend, step, prompt group, answer, token.

const drawing = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

const trendPicture = (trend, kept, chosen, choose) => {
  const [width, height, left, right, top, bottom] = [640, 170, 46, 12, 10, 24];
  const [low, high] = [Math.min(...trend.values), Math.max(...trend.values)];
  const [first, last] = [trend.steps[0], trend.steps[trend.steps.length - 1]];
  const x = step => left + (width - left - right) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = value => height - bottom - (height - top - bottom) * (high > low ? (value - low) / (high - low) : 0.5);
  const near = step => trend.values[trend.steps.reduce((best, other, place) => Math.abs(other - step) < Math.abs(trend.steps[best] - step) ? place : best, 0)];
  const path = trend.steps.map((step, place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(trend.values[place]).toFixed(1)}`).join("");
  const picture = drawing("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${trend.name} by step`}, drawing("path", {d: path}));
  for (const [value, place] of [[low, y(low)], [high, y(high)]]) picture.append(drawing("text", {x: left - 6, y: place + 4, "text-anchor": "end"}, Number(value.toPrecision(3)).toString()));
  for (const step of [first, last]) picture.append(drawing("text", {x: x(step), y: height - 6, "text-anchor": step === first ? "start" : "end"}, `step ${step}`));
  for (const step of kept) {
    const dot = drawing("circle", {cx: x(step), cy: y(near(step)), r: 6, class: step === chosen ? "chosen" : ""}, drawing("title", {}, `step ${step}`));
    dot.addEventListener("click", () => choose(step));
    picture.append(dot);
  }
  return make("div", {class: "trend"}, picture);
};

const COLOURINGS = { // how tokens are coloured: what is told, and from an answer and a place the value
  advantages: ["advantage", (answer, place) => answer.advantages[place]],
  sampled: ["log-probability when sampled", (answer, place) => answer.sampled[place]],
  reference: ["sampled minus reference", (answer, place) => answer.sampled[place] - answer.reference[place]],
  final: ["after training minus sampled", (answer, place) => answer.final[place] - answer.sampled[place]],
};

const microscope = (stages, place) => {
  const state = {stage: stages[0], trend: 0, step: null, answer: null, token: 0, colouring: "advantages"};
  const set = changes => { Object.assign(state, changes); draw(); };
  const stepsOf = stage => [...new Set(stage.answers.map(answer => answer.step))];
  const ofStep = () => state.stage.answers.filter(answer => answer.step === state.step);
  const choose = step => { state.step = step; set({answer: ofStep()[0], token: 0}); };
  const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;
  const signed = value => (value > 0 ? "+" : "") + value.toFixed(3);

  const group = number => {
    const own = ofStep().filter(answer => answer.group === number);
    const parts = Object.keys(own[0].parts);
    const heads = ["", "answer", "reward", ...(parts.length > 1 ? parts : []), "tokens", "mean advantage"];
    const rows = own.map((answer, index) => {
      const numbers = [answer.reward, ...(parts.length > 1 ? parts.map(name => answer.parts[name]) : []), answer.ended ? answer.length : `${answer.length} (cut off)`, signed(mean(answer.advantages))];
      const pick = () => set({answer, token: 0});
      return make("tr", {"aria-selected": String(answer === state.answer), onclick: pick},
        make("td", {}, make("button", {onclick: pick, "aria-label": `Answer ${index + 1}`}, String(index + 1))),
        make("td", {}, make("pre", {}, answer.pieces.join(""))),
        ...numbers.map(value => make("td", {class: "n"}, value === null ? "" : String(value))));
    });
    return make("section", {}, make("h3", {}, `Prompt ${number + 1} of step ${state.step}`), make("pre", {}, state.stage.prompts[own[0].prompt]),
      make("div", {class: "wide"}, make("table", {class: "pick"}, make("thead", {}, make("tr", {}, ...heads.map(head => make("th", {}, head)))), make("tbody", {}, ...rows))));
  };

  const tokens = () => {
    const answer = state.answer, value = COLOURINGS[state.colouring][1];
    const values = answer.pieces.map((_, index) => value(answer, index));
    const reach = Math.max(...values.map(Math.abs), 1e-9);
    const line = make("div", {class: "tokens"});
    answer.pieces.forEach((piece, index) => {
      const strength = (0.65 * Math.abs(values[index]) / reach).toFixed(2);
      const span = make("span", {class: index === state.token ? "chosen" : "", title: values[index].toFixed(3), onclick: () => set({token: index})}, piece.replace(/\n/g, "⏎\n") || "∅");
      span.style.backgroundColor = values[index] < 0 ? `rgba(213, 94, 0, ${strength})` : `rgba(0, 114, 178, ${strength})`;
      line.append(span);
    });
    return line;
  };

  const facts = () => {
    const {answer, token} = state;
    const told = [["token", `${token + 1} of ${answer.length}: ${JSON.stringify(answer.pieces[token])}`],
      ["log-probability when sampled", `${answer.sampled[token].toFixed(3)} (probability ${(100 * Math.exp(answer.sampled[token])).toFixed(1)} %)`]];
    if (answer.reference) told.push(["under the reference", `${answer.reference[token].toFixed(3)} (${signed(answer.sampled[token] - answer.reference[token])} since)`]);
    told.push(["after training", `${answer.final[token].toFixed(3)} (${signed(answer.final[token] - answer.sampled[token])} since)`],
      ["advantage", signed(answer.advantages[token])],
      ["reward of the answer", [answer.reward, ...Object.entries(answer.parts).map(([name, part]) => `${name} ${part === null ? "none" : part}`)].join(" · ")]);
    return make("dl", {class: "facts"}, ...told.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  };

  const draw = () => {
    const {stage} = state, trend = stage.trends[state.trend], steps = stepsOf(stage);
    const colourings = Object.entries(COLOURINGS).filter(([name]) => name !== "reference" || stage.reference).map(([name, [text]]) => [name, text]);
    const groups = [...new Set(ofStep().map(answer => answer.group))];
    place.replaceChildren(
      make("div", {class: "tools"},
        ...stages.map(other => make("button", {"aria-pressed": String(other === stage), onclick: () => { state.stage = other; state.trend = 0; choose(stepsOf(other)[0]); }}, other.name)),
        select("Trend", stage.trends.map(({name}, number) => [String(number), name]), String(state.trend), number => set({trend: Number(number)})),
        select("Step", steps.map(step => [String(step), String(step)]), String(state.step), step => choose(Number(step)))),
      trendPicture(trend, steps, state.step, choose),
      ...groups.map(group),
      make("h3", {}, "The chosen answer, token by token"),
      make("div", {class: "tools"}, select("Colour by", colourings, state.colouring, colouring => set({colouring})), make("span", {}, "blue: above 0, orange: below 0")),
      tokens(), facts());
  };
  choose(stepsOf(state.stage)[0]);
};

const rollouts = read("rollouts-data");
if (rollouts) microscope(rollouts, document.getElementById("rollouts"));
