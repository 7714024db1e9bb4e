"use strict";
// The page is whole without this script. It shows the facts of one node at a time beside the graph, and what is before and behind it.
(() => {
  const wide = matchMedia("(min-width: 60rem)").matches;
  const HINT = wide ? "A click on a node shows its facts, and what is before and behind it." : "";
  const root = document.documentElement, graph = document.getElementById("graph"), filter = document.getElementById("filter");
  const nodes = new Map([...graph.querySelectorAll(".node")].map((node) => [node.dataset.node, node]));
  const sections = new Map([...nodes.keys()].map((name) => [name, document.getElementById(name)]));
  const boxes = graph.querySelector(".box");
  const edges = [...graph.querySelectorAll(".edge")];
  const before = new Map(), behind = new Map();
  const join = (from, to) => {
    before.set(to, [...(before.get(to) || []), from]);
    behind.set(from, [...(behind.get(from) || []), to]);
  };
  edges.forEach((edge) => join(edge.dataset.from, edge.dataset.to));
  nodes.forEach((node, name) => node.dataset.run && join(node.dataset.run, name));

  const reached = (start, next) => {
    const found = new Set([start]), waiting = [start];
    while (waiting.length) {
      for (const name of next.get(waiting.pop()) || []) {
        if (!found.has(name)) { found.add(name); waiting.push(name); }
      }
    }
    return found;
  };

  const show = (name) => {
    const made = nodes.get(name).dataset.run;
    sections.forEach((section, other) => section.classList.toggle("shown", other === name || other === made));
    document.getElementById("facts").scrollTop = 0;
  };

  const choose = (name, keep) => {
    const above = reached(name, before), below = reached(name, behind);
    const made = nodes.get(name).dataset.run;
    graph.classList.add("chosen-one");
    nodes.forEach((node, other) => {
      node.classList.toggle("near", above.has(other) || below.has(other));
      node.classList.toggle("chosen", other === name);
    });
    for (const edge of edges) {
      const { from, to } = edge.dataset;
      edge.classList.toggle("near", (above.has(from) && above.has(to)) || (below.has(from) && below.has(to)));
      if (edge.classList.contains("near")) boxes.before(edge); // above the others, below the boxes
      edge.classList.toggle("direct", from === name || to === name || to === made);
    }
    graph.querySelectorAll(".frame").forEach((frame) => {
      frame.classList.toggle("near", frame.parentNode.querySelector(".near") !== null);
    });
    show(name);
    if (!keep) {
      try { history.replaceState(null, "", `#${name}`); } catch { /* a sandboxed frame has no address of its own */ }
    }
    reveal(name);
  };

  const reveal = (name) => {
    const box = nodes.get(name).getBoundingClientRect(), frame = graph.getBoundingClientRect();
    if (box.left < frame.left || box.right > frame.right) graph.scrollLeft += box.left - frame.left - (frame.width - box.width) / 2;
    if (box.top < frame.top || box.bottom > frame.bottom) graph.scrollTop += box.top - frame.top - (frame.height - box.height) / 2;
  };

  const clear = () => {
    graph.classList.remove("chosen-one");
    nodes.forEach((node) => node.classList.remove("near", "chosen"));
    edges.forEach((edge) => edge.classList.remove("near", "direct"));
  };

  const named = () => {
    const hash = location.hash.slice(1);
    if (nodes.has(hash)) return hash;
    try {
      const plain = decodeURIComponent(hash);
      if (nodes.has(plain)) return plain;
      const part = plain.replace(/^(run|artifact)-/, "");
      return part.length > 5 ? [...nodes.keys()].find((name) => name.includes(part)) : undefined;
    } catch { return undefined; }
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#'], a.node");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const name = link.dataset.node || link.getAttribute("href").slice(1);
    choose(name);
    if (!link.dataset.node) nodes.get(name).focus({ preventScroll: true });
  });
  graph.addEventListener("click", (event) => { if (!event.target.closest(".node")) clear(); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { filter.value = ""; narrow(); clear(); return; }
    const chosen = document.activeElement.closest && document.activeElement.closest(".node");
    const ways = { ArrowLeft: before, ArrowRight: behind }, way = ways[event.key];
    if (!chosen || !way) return;
    const [next] = way.get(chosen.dataset.node) || [];
    if (next) { event.preventDefault(); choose(next); nodes.get(next).focus({ preventScroll: true }); }
  });
  window.addEventListener("hashchange", () => { const name = named(); if (name) choose(name, true); });

  const own = (section) => [...section.querySelectorAll("h3, code, td, tbody th")].map((fact) => fact.textContent).join(" ");
  const texts = new Map([...sections].map(([name, section]) => [name, own(section).toLowerCase()])); // not what it links to
  const narrow = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0, first = null;
    nodes.forEach((node, name) => {
      const found = words.every((word) => texts.get(name).includes(word));
      node.classList.toggle("found", found);
      if (found) { count += 1; first = first || name; }
    });
    graph.classList.toggle("filtered", words.length > 0);
    document.getElementById("count").textContent = words.length ? `${count} of ${nodes.size}` : HINT;
    return words.length ? first : null;
  };
  filter.addEventListener("input", () => { clear(); narrow(); });
  filter.addEventListener("keydown", (event) => {
    const first = event.key === "Enter" && narrow();
    if (first) { choose(first); nodes.get(first).focus({ preventScroll: true }); }
  });
  document.getElementById("fit").addEventListener("click", (event) => {
    const fitted = root.classList.toggle("fitted");
    event.currentTarget.setAttribute("aria-pressed", String(fitted));
  });

  root.classList.add("js");
  document.querySelector(".tools").hidden = false;
  narrow();
  const asked = graph.querySelector(".node.asked").dataset.node, start = named();
  if (start) choose(start, true);
  else { show(asked); reveal(asked); graph.scrollLeft = graph.scrollWidth; }
})();
