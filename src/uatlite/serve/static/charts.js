// Drawings of values that the service computed. Nothing here computes a metric.

import { el, number, percent, show, svg } from "./dom.js";

const MOST_CLASSES = 6;
const MOST_DOTTED = 4;
const WIDTH = 440;

export function drawProbabilities(place, before, after) {
  const names = Object.keys(after).sort((a, b) => after[b] - after[a]);
  const rows = names.slice(0, MOST_CLASSES).map((name, rank) => classRow(name, before[name], after[name], rank > 0));
  const rest = names.slice(MOST_CLASSES);
  if (rest.length) {
    const sum = (values) => rest.reduce((total, name) => total + values[name], 0);
    rows.push(classRow(`${rest.length} others`, sum(before), sum(after), true));
  }
  const legend = el("p", { class: "legend" }, el("span", {}, el("i"), "calibrated"), el("span", {}, el("i", { class: "before" }), "before calibration"));
  show(place, ...rows, legend);
}

function classRow(name, before, after, other) {
  const bar = (share, kind) => {
    const fill = el("div", { class: `fill ${kind}` });
    fill.style.width = `${100 * share}%`;
    return el("div", { class: kind ? "track thin" : "track" }, fill);
  };
  return el(
    "div",
    { class: other ? "class-row others" : "class-row" },
    el("span", { class: "name" }, name),
    el("span", { class: "value" }, percent(after), " ", el("small", {}, percent(before))),
    el("div", { class: "bars" }, bar(after, ""), bar(before, "before")),
  );
}

// Dots of the passes for the likeliest classes; the threshold stands on the first row where it is one of confidence.
export function drawPasses(place, classes, passes, after, threshold) {
  const order = classes.map((_, column) => column).sort((a, b) => after[classes[b]] - after[classes[a]]);
  const shown = order.slice(0, classes.length === 2 ? 2 : MOST_DOTTED);
  const [left, right, height] = [8, WIDTH - 8, 58];
  const x = (p) => left + p * (right - left);
  const parts = shown.flatMap((column, row) => {
    const top = row * height;
    const middle = top + 36;
    const name = classes[column];
    const values = passes.map((pass) => pass[column]);
    return [
      svg("text", { x: left, y: top + 14 }, svg("tspan", { class: "ink" }, name), svg("tspan", { dx: 8 }, `${percent(Math.min(...values))} to ${percent(Math.max(...values))}`)),
      svg("line", { x1: left, x2: right, y1: middle, y2: middle, class: "grid-line" }),
      ...values.map((p, pass) => svg("circle", { cx: x(p), cy: middle + ((pass % 3) - 1) * 4, r: 5, class: "dot" }, svg("title", {}, `pass ${pass + 1}: ${percent(p)}`))),
      svg("line", { x1: x(after[name]), x2: x(after[name]), y1: middle - 12, y2: middle + 12, class: "mean" }),
    ];
  });
  const bottom = shown.length * height + 8;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((p) => svg("text", { x: x(p), y: bottom + 10, "text-anchor": p === 0 ? "start" : p === 1 ? "end" : "middle" }, percent(p, 0)));
  if (threshold !== null && threshold >= 0 && threshold <= 1) {
    parts.push(svg("line", { x1: x(threshold), x2: x(threshold), y1: 20, y2: 54, class: "limit" }));
    parts.push(svg("text", { x: x(threshold), y: 14, "text-anchor": "middle", class: "limit-name" }, "threshold"));
  }
  const told = `${passes.length} passes. ${shown.map((column) => `${classes[column]}: ${passes.map((pass) => percent(pass[column])).join(", ")}`).join(". ")}`;
  show(place, svg("svg", { viewBox: `0 0 ${WIDTH} ${bottom + 16}`, role: "img", "aria-label": told }, ...parts, ...ticks));
}

export function drawLayers(place, layers) {
  const [left, right, step] = [84, WIDTH - 52, 24];
  const most = Math.max(...layers.map((layer) => layer.share), 1e-9);
  const rows = layers.flatMap((layer, row) => {
    const y = row * step;
    const sum = Object.values(layer.components).reduce((a, b) => a + Math.max(b, 0), 0) || 1;
    const width = (Math.max(layer.share, 0) / most) * (right - left);
    let start = left;
    const bars = Object.entries(layer.components).map(([component, value]) => {
      const part = (Math.max(value, 0) / sum) * width;
      const bar = svg("rect", { x: start, y: y + 4, width: part, height: 15, rx: 2, class: component === "attention" ? "part-1" : "part-0" }, svg("title", {}, `${layer.name}, ${component.replace("_", "-")}: ${number(value)}`));
      start += part;
      return bar;
    });
    return [svg("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, layer.name), ...bars, svg("text", { x: left + width + 6, y: y + 16, class: "ink" }, percent(layer.share))];
  });
  const told = layers.map((layer) => `${layer.name} ${percent(layer.share)}`).join(", ");
  const legend = el("p", { class: "legend" }, el("span", {}, el("i", { class: "second" }), "attention"), el("span", {}, el("i"), "feed-forward, embeddings, head"));
  show(place, svg("svg", { viewBox: `0 0 ${WIDTH} ${layers.length * step}`, role: "img", "aria-label": told }, ...rows), legend);
}

// The risk–coverage curve, and where on it the threshold stands.
export function drawCurve(place, curve, here) {
  const [width, height, left, bottom, top] = [640, 280, 46, 36, 12];
  const most = niceCeiling(Math.max(...curve.risk, 0.01));
  const x = (coverage) => left + coverage * (width - left - 12);
  const y = (risk) => top + (1 - risk / most) * (height - top - bottom);
  const points = curve.coverage.map((coverage, i) => `${x(coverage).toFixed(1)},${y(curve.risk[i]).toFixed(1)}`).join(" ");
  const across = [0, 0.25, 0.5, 0.75, 1].map((share) => share * most);
  const parts = [
    ...across.flatMap((risk) => [svg("line", { x1: left, x2: width - 12, y1: y(risk), y2: y(risk), class: "grid-line" }), svg("text", { x: left - 6, y: y(risk) + 4, "text-anchor": "end" }, percent(risk, most < 0.1 ? 1 : 0))]),
    ...[0, 0.25, 0.5, 0.75, 1].map((share) => svg("text", { x: x(share), y: height - bottom + 16, "text-anchor": "middle" }, percent(share, 0))),
    svg("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "share of rows answered, the most trusted first"),
    svg("polygon", { points: `${x(curve.coverage[0])},${y(0)} ${points} ${x(1)},${y(0)}`, class: "area" }),
    svg("polyline", { points, class: "curve" }),
  ];
  if (here.answered > 0) {
    parts.push(svg("line", { x1: x(here.coverage), x2: x(here.coverage), y1: top, y2: height - bottom, class: "limit" }));
    parts.push(svg("circle", { cx: x(here.coverage), cy: y(Math.min(here.risk, most)), r: 6, class: "here" }));
  }
  const told = `Risk–coverage curve. At the threshold ${percent(here.coverage)} of rows are answered, ${percent(here.risk)} of them wrongly.`;
  show(place, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told }, ...parts));
}

function niceCeiling(value) {
  return [0.02, 0.04, 0.08, 0.12, 0.2, 0.4, 0.6, 0.8, 1].find((limit) => limit >= value) ?? 1;
}
