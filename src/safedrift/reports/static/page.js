"use strict";
// Draws the figures of the page in light or dark colours, and again when the scheme changes or the
// page is printed. Zooming one figure zooms all that share its axis of episodes.
const DARK = { "#222222": "#e8e8e8", "#0072B2": "#4aa3df", "#56B4E9": "#9ad4f5", "#D55E00": "#f08a3c",
  "#009E73": "#2cc79a", "#CC79A7": "#e39cc4", "#767676": "#9aa0a6", "#D0D5DB": "#3a4148",
  "#E69F00": "#f2b632", "#7A5195": "#b08ad0", "#8C564B": "#c08a7e" };
const scheme = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 640px)");
const plots = [...document.querySelectorAll(".plot")];
const figures = new Map(plots.map(plot =>
  [plot, JSON.parse(document.getElementById(plot.id + "-data").textContent)]));
let printing = false;

function coloured(value, dark) {
  if (typeof value === "string") return dark && DARK[value] || value;
  if (Array.isArray(value)) return value.map(item => coloured(item, dark));
  if (value === null || typeof value !== "object" || value.bdata) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, coloured(item, dark)]));
}

function draw(plot) {
  const dark = scheme.matches && !printing;
  const figure = coloured(figures.get(plot), dark);
  const line = dark ? "#2c3238" : "#e4e7ea", text = dark ? "#e8e8e8" : "#222222";
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true };
  const phone = !printing && narrow.matches;
  const layout = figure.layout;
  layout.template = { layout: { xaxis: axis, yaxis: axis, font: { color: text },
    annotationdefaults: { font: { color: text } },
    hoverlabel: { bgcolor: dark ? "#1c2126" : "#ffffff", bordercolor: line, font: { color: text } } } };
  layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
  const kept = plot.layout && !printing && plot.layout.xaxis.range;
  if (kept && figure.linked) layout.xaxis.range = [...kept];
  if (matchMedia("(pointer: coarse)").matches) layout.dragmode = false;  // dragging scrolls the page
  layout.width = printing ? 680 : undefined;
  if (phone) layout.margin = { ...layout.margin, l: Math.min(layout.margin.l, 48), r: 6 };
  if (phone && layout.xaxis2 && !layout.xaxis2.matches && !layout.xaxis.matches) stack(layout);
  plot.style.height = layout.height + "px";
  return Plotly.react(plot, figure.data, layout,
    { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] });
}

// Two panels side by side become one above the other.
function stack(layout) {
  Object.assign(layout.xaxis, { domain: [0, 1] });
  Object.assign(layout.xaxis2, { domain: [0, 1] });
  Object.assign(layout.yaxis, { domain: [0.58, 1] });
  Object.assign(layout.yaxis2, { domain: [0, 0.42] });
  layout.height *= 1.6;
}

function link(plot) {
  plot.on("plotly_relayout", async change => {
    if (link.following || !Object.keys(change).some(key => key.startsWith("xaxis"))) return;
    link.following = true;
    const range = { "xaxis.range": [...plot.layout.xaxis.range] };
    const others = plots.filter(other => other !== plot && figures.get(other).linked);
    await Promise.all(others.map(other => Plotly.relayout(other, range)));
    link.following = false;
  });
}

plots.forEach(draw);
plots.filter(plot => figures.get(plot).linked).forEach(link);
for (const media of [scheme, narrow]) media.addEventListener("change", () => plots.forEach(draw));
addEventListener("beforeprint", () => { printing = true; plots.forEach(draw); });
addEventListener("afterprint", () => { printing = false; plots.forEach(draw); });
