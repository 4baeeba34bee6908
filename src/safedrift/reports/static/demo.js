// Maps of visits and mean steps, one per learner, with a slider over the episodes.
const demo = JSON.parse(document.getElementById("maps-data").textContent);
const slider = document.getElementById("frame"), button = document.getElementById("play");
const NS = "http://www.w3.org/2000/svg";
let timer = null, waiting = false;

function shape(tag, attributes, parent) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent.append(node);
  return node;
}

function place(cell) { return [cell % demo.columns, Math.floor(cell / demo.columns)]; }

function makeMap(learner, number) {
  const box = document.createElement("div"), title = document.createElement("h3");
  const dot = document.createElement("i");
  dot.className = "dot";
  dot.dataset.colour = learner.colour;
  title.append(dot, learner.name);
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", `-0.06 -0.06 ${demo.columns + 0.12} ${demo.rows + 0.12}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `where ${learner.name} goes`);
  if (number === 0) {
    const hatch = shape("pattern", { id: "hatch", width: 0.25, height: 0.25,
      patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, shape("defs", {}, svg));
    shape("line", { class: "hatch", x1: 0, y1: 0, x2: 0, y2: 0.25 }, hatch);
  }
  const cells = [], arrows = [];
  for (let s = 0; s < demo.rows * demo.columns; s++) {
    const [x, y] = place(s), square = { x, y, width: 1, height: 1 };
    shape("rect", { class: "floor", ...square }, svg);
    cells.push(shape("rect", { class: "cell", ...square }, svg));
  }
  for (const s of demo.hazards) {
    const [x, y] = place(s);
    shape("rect", { class: "hazard", x, y, width: 1, height: 1 }, svg);
  }
  for (let s = 0; s < demo.rows * demo.columns; s++) arrows.push(shape("path", { class: "arrow" }, svg));
  const goal = shape("circle", { class: "goal", r: 0.4 }, svg);
  const [x, y] = place(demo.start);
  shape("text", { class: "label", x: x + 0.5, y: y + 0.93 }, svg).textContent = "start";
  const reward = document.createElement("p"), hazard = document.createElement("p");
  box.append(title, svg, reward, hazard);
  document.getElementById("maps").append(box);
  return { learner, cells, arrows, goal, reward, hazard };
}

function arrow(cell, [right, down]) {
  const [x, y] = place(cell).map(value => value + 0.5);
  const length = Math.hypot(right, down) / 100;
  if (length < 0.15) return "";
  const size = 0.34 * Math.min(length, 1) / length / 100, dx = size * right, dy = size * down;
  const tip = [x + dx, y + dy], head = 0.42;
  const side = turn => `${tip[0] - head * (dx - turn * dy)} ${tip[1] - head * (dy + turn * dx)}`;
  return `M ${x - dx} ${y - dy} L ${tip[0]} ${tip[1]} M ${side(1)} L ${tip[0]} ${tip[1]} L ${side(-1)}`;
}

function drawMap(map, frame) {
  const { learner, cells, arrows } = map;
  learner.visits[frame].forEach((visits, s) => {
    cells[s].setAttribute("fill-opacity", Math.min(0.85, 0.85 * Math.sqrt(visits / 600)).toFixed(3));
    const d = visits >= 5 ? arrow(s, learner.moves[frame][s]) : "";
    arrows[s].setAttribute("d", d);
    arrows[s].setAttribute("opacity", Math.min(1, 0.25 + visits / 80).toFixed(2));
  });
  const [x, y] = place(demo.goals[frame]);
  map.goal.setAttribute("cx", x + 0.5);
  map.goal.setAttribute("cy", y + 0.5);
  const spent = learner.hazard[frame] / 100, over = spent > demo.allowed + 0.005;
  map.reward.textContent = `reward ${(learner.reward[frame] / 100).toFixed(2)} ` +
    `(best safe ${(demo.best[frame] / 100).toFixed(2)})`;
  map.hazard.textContent = `hazard steps ${spent.toFixed(2)} of ${demo.allowed}` + (over ? ": unsafe" : "");
  map.hazard.className = over ? "over" : "";
}

const maps = demo.learners.map(makeMap);
const moves = demo.episodes.map((_, i) => i).filter(i => i && demo.goals[i] !== demo.goals[i - 1]);

// Episodes since the last move; the episode of every move has a frame.
function since(frame) {
  return demo.episodes[frame] - demo.episodes[moves.filter(i => i <= frame).at(-1)];
}

function show() {
  waiting = false;
  const frame = Number(slider.value), episode = demo.episodes[frame];
  document.getElementById("episode").textContent = `episode ${episode.toLocaleString("en")}` +
    (frame >= moves[0] ? `, ${since(frame).toLocaleString("en")} since the target moved` : "");
  maps.forEach(map => drawMap(map, frame));
  for (const plot of plots.filter(plot => figures.get(plot).linked)) {
    for (const end of ["x0", "x1"]) figures.get(plot).layout.shapes[0][end] = episode;
    Plotly.relayout(plot, { "shapes[0].x0": episode, "shapes[0].x1": episode });
  }
}

function soon() {
  if (!waiting) requestAnimationFrame(show);
  waiting = true;
}

function stop() {
  clearInterval(timer);
  timer = null;
  button.textContent = "Play";
}

function step() {
  if (Number(slider.value) >= Number(slider.max)) return stop();
  slider.value = Number(slider.value) + 1;
  soon();
}

function paint() {
  for (const dot of document.querySelectorAll(".dot"))
    dot.style.background = coloured(dot.dataset.colour, scheme.matches && !printing);
}

slider.addEventListener("input", () => { stop(); soon(); });
button.addEventListener("click", () => {
  if (timer !== null) return stop();
  if (slider.value === slider.max) slider.value = 0;
  button.textContent = "Pause";
  timer = setInterval(step, 120);
});
scheme.addEventListener("change", paint);
paint();
show();
