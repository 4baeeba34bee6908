"use strict";
// The page of `safedrift watch`: asks once a second, and draws what has changed. Texts of folders
// are set as text only (textContent), never as HTML.

const EVERY = 1000; // milliseconds between two questions
const REGRET = [["", "DR(n)/n, DR(n) = Σ (V"], ["sub", "r"], ["", "* − V"], ["sub", "r"],
  ["", "): reward lost against the best safe policy of each episode"]];
const VIOLATION = [["", "CV(n)/n, CV(n) = [Σ (b − V"], ["sub", "g"],
  ["", ")]₊: utility missing; safe episodes make up for unsafe ones"]];
const CONFIG = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
const SIGNS = { running: "running", done: "done", failed: "failed", interrupted: "interrupted",
  damaged: "damaged" };

const byId = id => document.getElementById(id);
const main = document.querySelector("main");
const items = new Map(); // id -> nodes of a row in the list
let rows = [];
let shown = null; // { id, tag, nodes } of what is shown as a whole

// ---------------------------------------------------------------- nodes

function make(tag, name = "", ...children) {
  const node = document.createElement(tag);
  if (name) node.className = name;
  node.append(...children); // strings become text
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setParts(node, parts) {
  const text = parts.map(([tag, part]) => `${tag}:${part}`).join("|");
  if (node.dataset.parts === text) return;
  node.dataset.parts = text;
  node.replaceChildren(...parts.map(([tag, part]) =>
    tag === "sub" || tag === "sup" ? make(tag, "", part) : document.createTextNode(part)));
}

function withParts(tag, name, parts) {
  const node = make(tag, name);
  setParts(node, parts);
  return node;
}

function fill({ body, head }, lines) { // rows of cells: texts, or parts of a formula
  const text = JSON.stringify(lines);
  if (body.dataset.lines === text) return;
  body.dataset.lines = text;
  body.replaceChildren(...lines.map(line => make("tr", "", ...line.map((cell, i) => {
    const node = Array.isArray(cell) ? withParts("td", "", cell) : make("td", "", cell);
    node.dataset.label = head[i];
    return node;
  }))));
}

function table(name, head) {
  const body = make("tbody");
  const top = make("tr", "", ...head.map(cell => make("th", "", cell)));
  const node = make("table", name, make("thead", "", top), body);
  return { node, body, head };
}

// ---------------------------------------------------------------- words

const count = n => n.toLocaleString("en-US");

function duration(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function speed(rate) {
  return rate >= 100 ? count(Math.round(rate)) : rate.toPrecision(2);
}

function pace(row) {
  if (row.state !== "running") return "";
  const parts = [];
  if (row.rate) parts.push(`${speed(row.rate)} per second`);
  if (row.rate && row.left != null) parts.push(`${duration(row.left)} left`);
  if (!row.rate && row.beat != null) parts.push(`last sign of life ${duration(row.beat)} ago`);
  return parts.join(", ");
}

function progress(row) {
  if (row.total == null) return "";
  const what = row.kind === "sweep" ? "runs" : "episodes";
  return row.done === row.total ? `${count(row.total)} ${what}`
    : `${count(row.done)} of ${count(row.total)} ${what}`;
}

function width(part, total) {
  return `${total ? Math.min(100, 100 * part / total) : 0}%`;
}

// ---------------------------------------------------------------- the list

function makeItem(row) {
  const nodes = {};
  for (const name of ["name", "state", "regret", "violation"]) nodes[name] = make("span", name);
  for (const name of ["sub", "numbers", "error"]) nodes[name] = make("div", name);
  nodes.progress = make("div", "sub");
  nodes.done = make("i");
  nodes.failed = make("i");
  nodes.track = make("div", "track", nodes.done, nodes.failed);
  nodes.numbers.append(nodes.regret, nodes.violation);
  nodes.item = make("a", "item", make("div", "top", nodes.name, nodes.state), nodes.sub,
    nodes.progress, nodes.track, nodes.numbers, nodes.error);
  nodes.item.href = `#${row.id}`;
  return nodes;
}

function showItem(nodes, row) {
  setText(nodes.name, row.name);
  nodes.name.title = row.name;
  setText(nodes.state, SIGNS[row.state] || "");
  nodes.state.className = `state ${SIGNS[row.state] || ""}`;
  const seed = row.seed == null ? "" : ` · seed ${row.seed}`;
  setText(nodes.sub, row.title ? row.title + seed : "");
  setText(nodes.progress, [progress(row), pace(row)].filter(Boolean).join(", "));
  nodes.track.hidden = row.total == null || (row.state === "done" && !row.failed);
  setTrack(nodes, row);
  const sweep = row.kind === "sweep";
  setText(nodes.regret, sweep ? (row.failed ? `${count(row.failed)} failed` : "")
    : row.regret == null ? "" : `regret ${row.regret}`);
  setText(nodes.violation, row.violation == null ? (row.pending ? "reading …" : "")
    : `violation ${row.violation}`);
  nodes.numbers.hidden = !nodes.regret.textContent && !nodes.violation.textContent;
  setText(nodes.error, row.error || "");
  nodes.item.setAttribute("aria-current", String(shown !== null && shown.id === row.id));
}

function setTrack(nodes, row) {
  const failed = row.failed || 0;
  nodes.done.style.width = width((row.done || 0) - failed, row.total);
  nodes.failed.style.width = width(failed, row.total);
}

function showList(found) {
  const list = byId("list");
  const order = rows.map(row => {
    if (!items.has(row.id)) items.set(row.id, makeItem(row));
    showItem(items.get(row.id), row);
    return items.get(row.id).item;
  });
  for (const id of [...items.keys()]) if (!rows.some(row => row.id === id)) items.delete(id);
  const legend = byId("legend") || makeLegend();
  legend.hidden = !rows.some(row => row.kind === "run");
  setText(byId("full") || legend.lastChild, found.full
    ? `Only the first ${count(found.full)} folders are shown.` : "");
  const wanted = [...order, legend];
  if (wanted.length !== list.children.length || wanted.some((x, i) => x !== list.children[i])) {
    list.replaceChildren(...wanted);
  }
}

function makeLegend() {
  const legend = make("div", "legend", withParts("p", "", [["", "Regret per episode: "], ...REGRET]),
    withParts("p", "", [["", "Violation per episode: "], ...VIOLATION]), make("p"));
  legend.id = "legend";
  legend.lastChild.id = "full";
  return legend;
}

function showCounts() {
  const parts = Object.keys(SIGNS).map(state =>
    [rows.filter(row => row.state === state).length, state]).filter(([n]) => n);
  setText(byId("counts"), parts.map(([n, state]) => `${count(n)} ${state}`).join(" · "));
  const running = rows.filter(row => row.state === "running").length;
  const title = running ? `(${running}) safedrift watch` : "safedrift watch";
  if (document.title !== title) document.title = title;
}

function showEmpty(found) {
  const folder = found.folder;
  const text = found.there ? "No runs here yet" : "The folder is not there any more";
  const node = make("div", "empty", make("h2", "", text),
    make("p", "quiet", `In ${folder}. Start one in another terminal; it shows up by itself:`),
    make("pre", "", `safedrift run maze --out ${quoted(folder)}/first\n`
      + `safedrift sweep study.yaml --out ${quoted(folder)}/study`));
  if (byId("detail").textContent !== node.textContent) byId("detail").replaceChildren(node);
  shown = null;
}

const quoted = path => /^[\w@%+=:,./-]*$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;

// ---------------------------------------------------------------- plots

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = name => style.getPropertyValue(`--${name}`).trim();
  return { text: get("text"), grid: get("grid"), mark: get("mark"), card: get("card"),
    line: get("line"), quiet: get("quiet") };
}

function themed(figure, id, wide) {
  const c = colours();
  const named = figure.data.filter(trace => trace.name && trace.showlegend !== false).length;
  const layout = { ...figure.layout, uirevision: id, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", font: { ...figure.layout.font, color: c.text },
    hoverlabel: { bgcolor: c.card, bordercolor: c.line, font: { color: c.text } } };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) {
      layout[key] = { gridcolor: c.grid, zerolinecolor: c.mark, linecolor: c.mark, ...layout[key] };
      if (key[0] === "y" && !layout[key].title) layout[key].automargin = true;
      if (layout[key].title) layout[key].title = { ...layout[key].title, font: { size: 13 } };
    }
  }
  if (wide < 520 && layout.showlegend) { // room for a legend of several lines
    layout.height += 19 * (named - 1);
    layout.margin = { ...layout.margin, l: 52, r: 8 };
  }
  layout.shapes = (layout.shapes || []).map(shape =>
    ({ ...shape, line: { ...shape.line, color: shade(shape.line.color, c) } }));
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false; // dragging scrolls
  return [figure.data.map(trace => recoloured(trace, c)), layout];
}

const BRIGHTER = { "#0072B2": "#4aa8e8", "#56B4E9": "#a6dcff", "#D55E00": "#ff9248",
  "#767676": "#a3a3a3" };

function shade(colour, c) { // brighter on a dark page
  if (colour === "#D0D5DB") return c.mark;
  return matchMedia("(prefers-color-scheme: dark)").matches && BRIGHTER[colour] || colour;
}

function recoloured(trace, c) {
  const found = { ...trace };
  if (trace.line) found.line = { ...trace.line, color: shade(trace.line.color, c) };
  if (trace.marker) found.marker = { ...trace.marker, color: shade(trace.marker.color, c) };
  if (trace.marker && trace.marker.symbol === "line-ns") {
    found.marker.line = { ...trace.marker.line, color: c.text };
  }
  return found;
}

const sizes = new ResizeObserver(entries => {
  for (const { target } of entries) {
    if (target.isConnected && target.layout) Plotly.Plots.resize(target);
  }
});

async function draw(node, figure, id) {
  const fresh = !node.on;
  await Plotly.react(node, ...themed(figure, id, node.clientWidth), CONFIG);
  if (fresh) sizes.observe(node);
  if (fresh && node.closest(".plots.linked")) node.on("plotly_relayout", change => follow(node, change));
}

let following = false;
async function follow(node, change) { // zooming one plot zooms all
  if (following || !Object.keys(change).some(key => key.startsWith("xaxis"))) return;
  following = true;
  const range = { "xaxis.range": [...node.layout.xaxis.range] };
  const others = [...document.querySelectorAll(".plots.linked .drawing")].filter(x => x !== node);
  await Promise.all(others.map(other => Plotly.relayout(other, range)));
  following = false;
}

function makeFigure() {
  const nodes = { title: make("h3"), caption: make("figcaption"), drawing: make("div", "drawing") };
  nodes.node = make("figure", "", nodes.title, nodes.caption, nodes.drawing);
  return nodes;
}

// ---------------------------------------------------------------- one run or sweep

function makeTile(label, meaning) {
  const tile = { value: make("div", "value", "–"), meaning: withParts("div", "meaning", meaning) };
  tile.node = make("div", "tile", make("div", "label", label), tile.value, tile.meaning);
  return tile;
}

function makeView(id, kind) {
  const nodes = { back: make("a", "back", "← all runs"), title: make("h2"), state: make("span"),
    name: make("p", "quiet"), problem: make("p", "problem"), done: make("i"), failed: make("i"),
    tiles: {} };
  nodes.back.href = "#";
  nodes.track = make("div", "track big", nodes.done, nodes.failed);
  const tiles = nodes.allTiles = make("div", "tiles");
  const wanted = kind === "sweep"
    ? { progress: ["Runs", []], rate: ["Runs per second", []], failures: ["Failed", []] }
    : { progress: ["Episodes", []], regret: ["Regret per episode", REGRET],
      violation: ["Violation per episode", VIOLATION], events: ["Changes noticed", []] };
  for (const [name, [label, meaning]] of Object.entries(wanted)) {
    nodes.tiles[name] = makeTile(label, meaning);
    tiles.append(nodes.tiles[name].node);
  }
  nodes.rest = make("div");
  byId("detail").replaceChildren(nodes.back, make("div", "heading", nodes.title, nodes.state),
    nodes.name, nodes.track, tiles, nodes.problem, nodes.rest);
  nodes.problem.hidden = true;
  return { id, kind, nodes, tag: null, detail: null };
}

function showTop(row) { // what moves every second
  const { nodes } = shown;
  setText(nodes.state, SIGNS[row.state] || "");
  nodes.state.className = `state ${SIGNS[row.state] || ""}`;
  setTrack(nodes, row);
  nodes.track.hidden = row.total == null;
  const { progress: done, rate, failures, regret, violation, events } = nodes.tiles;
  const known = row.total != null;
  const all = known && row.done === row.total;
  setText(done.value, known ? count(row.done) : "–");
  setText(done.meaning, [known ? (all ? "all of them" : `of ${count(row.total)}`) : "",
    row.kind === "run" ? pace(row) : ""].filter(Boolean).join(", "));
  if (row.kind === "sweep") {
    setText(rate.value, row.state === "running" && row.rate ? speed(row.rate) : "–");
    setText(rate.meaning, row.state === "running" && row.rate && row.left != null
      ? `about ${duration(row.left)} left` : row.state === "running" ? pace(row) : "");
    rate.node.hidden = row.state !== "running";
    setText(failures.value, row.failed == null ? "–" : count(row.failed));
    failures.node.classList.toggle("bad", row.failed > 0);
    setText(nodes.name, row.title || "");
  } else {
    setText(regret.value, row.regret ?? "–");
    setText(violation.value, row.violation ?? "–");
    setText(events.value, row.events == null ? "–" : count(row.events));
    setText(events.meaning, row.events ? "by the learner, with what changed below" : "");
  }
  const problem = row.error || (shown.detail && shown.detail.problem) || "";
  setText(nodes.problem, problem);
  nodes.problem.hidden = !problem;
  nodes.allTiles.hidden = row.state === "damaged" && !known;
}

function showRun(detail) {
  const { nodes, id } = shown;
  setText(nodes.title, detail.title || detail.name);
  setText(nodes.name, [detail.name, detail.configuration].filter(Boolean).join(" · "));
  if (!nodes.lead) {
    nodes.lead = make("p", "lead");
    nodes.notes = make("div");
    nodes.plots = make("div", "plots linked");
    nodes.figures = table("figures", ["Figure", "Value", "Definition"]);
    nodes.changes = table("changes", detail.changes_head || []);
    nodes.parameters = table("parameters", ["Name", "Value"]);
    nodes.changeCount = make("h3");
    nodes.changeCard = make("div", "card", nodes.changeCount,
      make("p", "quiet", detail.changes_caption || ""), make("div", "scroll", nodes.changes.node));
    nodes.figureCard = make("div", "card", make("h3", "", "Figures"), nodes.figures.node);
    nodes.guide = make("p", "quiet", "Episodes count from 0. Drag to zoom, double-click to zoom out; "
      + "all plots zoom together. Lines are thinned to 500 points; the minimum and maximum of "
      + "every segment are kept. Faint vertical lines mark restarts of the policy (solid) and of "
      + "the window (dotted) and other events (dashed); triangles mark changes that the learner "
      + "noticed, with their text where you point at them.");
    nodes.more = make("details", "card", make("summary", "", "Parameters"), nodes.parameters.node);
    nodes.rest.replaceChildren(nodes.lead, nodes.notes, nodes.plots, nodes.guide, nodes.changeCard,
      nodes.figureCard, nodes.more);
    nodes.drawn = [];
  }
  setText(nodes.lead, detail.headline || (detail.problem ? "" : waiting(detail)));
  nodes.notes.replaceChildren(...(detail.notes || []).map(note => make("p", "note", note)));
  showPlots(detail.plots || [], id);
  nodes.guide.hidden = !(detail.plots || []).length;
  const changes = detail.changes || [];
  nodes.changeCard.hidden = !changes.length;
  setText(nodes.changeCount, `Changes that the learner noticed: ${count(changes.length)}`);
  fill(nodes.changes, [...changes].reverse());
  nodes.figureCard.hidden = !(detail.figures || []).length;
  fill(nodes.figures, detail.figures || []);
  nodes.more.hidden = !(detail.parameters || []).length;
  fill(nodes.parameters, detail.parameters || []);
}

function waiting(detail) {
  if (!detail.parameters) return "The run has not begun yet: its world is being built and solved.";
  return "No episodes are recorded yet. Curves appear after about a second of learning; the first "
    + "time, the learner is compiled before that.";
}

function showPlots(plots, id) {
  const { nodes } = shown;
  while (nodes.drawn.length > plots.length) {
    const last = nodes.drawn.pop();
    Plotly.purge(last.drawing);
    last.node.remove();
  }
  while (nodes.drawn.length < plots.length) {
    nodes.drawn.push(makeFigure());
    nodes.plots.append(nodes.drawn.at(-1).node);
  }
  plots.forEach((plot, i) => {
    nodes.drawn[i].node.classList.toggle("wide", "xaxis2" in plot.figure.layout);
    setText(nodes.drawn[i].title, plot.title);
    setParts(nodes.drawn[i].caption, plot.caption);
    draw(nodes.drawn[i].drawing, plot.figure, id);
  });
}

function showSweep(detail) {
  const { nodes, id } = shown;
  setText(nodes.title, detail.title);
  if (!nodes.scores) {
    nodes.scores = table("scores", ["Learner", "Strict score", "Regret", "Violation", "Runs", "Failed"]);
    nodes.moreLearners = make("p", "quiet");
    nodes.plot = makeFigure();
    setText(nodes.plot.title, "Strict score of every learner so far");
    nodes.errors = table("errors", ["Runs", "What stopped them"]);
    nodes.moreErrors = make("p", "quiet");
    nodes.damaged = make("p", "note");
    nodes.meaning = make("div", "quiet meanings");
    nodes.errorCard = make("div", "card", make("h3", "", "Failures"), nodes.errors.node,
      nodes.moreErrors);
    nodes.over = make("p", "quiet");
    const scores = make("div", "card", make("h3", "", "Means so far, best first"), nodes.over,
      nodes.scores.node, nodes.moreLearners, nodes.meaning);
    nodes.plot.node.classList.add("card");
    nodes.rest.replaceChildren(nodes.plot.node, scores, nodes.errorCard, nodes.damaged);
  }
  const [strict, regret, violation] = detail.definitions || [[], [], []];
  nodes.meaning.replaceChildren(
    withParts("p", "", [["", "Strict score: "], ...strict]),
    withParts("p", "", [["", "Regret per episode: "], ...regret]),
    withParts("p", "", [["", "Violation per episode: "], ...violation]));
  setParts(nodes.plot.caption, [["", "Mean over worlds with a 95% interval over seeds (1.96 standard "
    + "errors). 0 is the optimum of every single episode, 1 is as bad as the uniform policy."]]);
  setText(nodes.over, !detail.worlds ? ""
    : detail.common_worlds === detail.worlds ? "Over all runs that are done."
    : `Over ${count(detail.common_worlds)} of ${count(detail.worlds)} worlds: those in which every `
      + "learner that has a score has one. Others would favour whoever has played the easier ones.");
  nodes.plot.node.hidden = !detail.figure;
  if (detail.figure) draw(nodes.plot.drawing, detail.figure, id);
  fill(nodes.scores, detail.learners || []);
  setText(nodes.moreLearners, detail.more_learners ? `and ${count(detail.more_learners)} more` : "");
  nodes.errorCard.hidden = !(detail.errors || []).length;
  fill(nodes.errors, detail.errors || []);
  setText(nodes.moreErrors, detail.more_errors ? `and ${count(detail.more_errors)} other reasons` : "");
  nodes.damaged.hidden = !detail.damaged;
  setText(nodes.damaged, detail.damaged ? `${count(detail.damaged)} lines of rows.jsonl cannot be `
    + "read; their runs are played again when the sweep goes on." : "");
}

// ---------------------------------------------------------------- asking

async function ask(path, tag) {
  const headers = tag ? { "If-None-Match": tag } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 304) return { same: true };
  return { tag: answer.headers.get("ETag"), data: await answer.json(), status: answer.status };
}

function chosenId(found) {
  const wanted = location.hash.slice(1);
  if (rows.some(row => row.id === wanted)) return wanted;
  return found.alone || !matchMedia("(max-width: 820px)").matches ? rows[0].id : null;
}

async function look() {
  const found = (await ask("/api/folders")).data;
  rows = found.folders;
  setText(byId("folder"), `\u2068${found.folder}\u2069`);
  byId("folder").title = found.folder;
  main.classList.toggle("alone", found.alone || !rows.length);
  showCounts();
  if (!rows.length) {
    showList(found);
    showEmpty(found);
    return;
  }
  const id = chosenId(found);
  main.classList.toggle("chosen", id !== null);
  if (id !== null) await showOne(rows.find(row => row.id === id));
  else shown = null;
  showList(found);
}

async function showOne(row) {
  if (shown === null || shown.id !== row.id || shown.kind !== row.kind) {
    shown = makeView(row.id, row.kind);
    setText(shown.nodes.title, row.title || row.name);
    if (main.classList.contains("chosen")) scrollTo(0, 0);
  }
  const view = shown;
  showTop(row);
  const answer = await ask(`/api/folders/${row.id}`, view.tag);
  if (answer.same || view !== shown) return;
  view.tag = answer.tag;
  view.detail = answer.data;
  if (answer.status === 200) (row.kind === "sweep" ? showSweep : showRun)(answer.data);
  showTop(row);
}

let timer = null;
let asking = false;
async function tick() {
  clearTimeout(timer);
  if (asking) return;
  asking = true;
  try {
    await look();
    setText(byId("link"), "live");
    byId("link").classList.remove("lost");
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // fetch failed: nobody answers
    setText(byId("link"), "no answer: is safedrift watch still running?");
    byId("link").classList.add("lost");
  } finally {
    asking = false;
    timer = setTimeout(tick, document.hidden ? 5 * EVERY : EVERY);
  }
}

addEventListener("hashchange", tick);
document.addEventListener("visibilitychange", () => document.hidden || tick());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (shown && shown.detail) (shown.kind === "sweep" ? showSweep : showRun)(shown.detail);
});
tick();
