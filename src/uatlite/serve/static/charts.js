// Drawings of values that the service computed. Nothing here computes a metric.

import { el, number, percent, show, svg } from "./dom.js";

const MOST_CLASSES = 6;
const MOST_DOTTED = 4;
const WIDTH = 440;
const NARROW = 0.2; // a band of probabilities below this width is also drawn closer

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

// The Gaussian of the margin as a band of the label's probability, darker towards the middle; a narrow one also closer.
export function drawBand(place, label, band, threshold) {
  const [left, right, tall] = [8, WIDTH - 8, 30];
  const values = band.probabilities;
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const rings = values.slice(0, Math.floor(values.length / 2)).map((_, i) => [i, values.length - 1 - i]);
  const row = (top, from, to, ticks, digits) => {
    const x = (p) => left + ((p - from) / (to - from)) * (right - left);
    const middle = values[Math.floor(values.length / 2)];
    return [
      svg("rect", { x: left, y: top, width: right - left, height: tall, rx: 4, class: "ground" }),
      ...rings.map(([i, j]) => {
        const ends = [x(Math.min(values[i], values[j])), x(Math.max(values[i], values[j]))];
        const told = `${percent(band.shares[j] - band.shares[i], 0)} of the margin's distribution: ${percent(values[i], 2)} to ${percent(values[j], 2)}`;
        return svg("rect", { x: ends[0], y: top, width: Math.max(ends[1] - ends[0], 0.75), height: tall, class: "ring" }, svg("title", {}, told));
      }),
      svg("line", { x1: x(middle), x2: x(middle), y1: top - 4, y2: top + tall + 4, class: "mean" }),
      ...(threshold !== null && threshold >= from && threshold <= to ? [svg("line", { x1: x(threshold), x2: x(threshold), y1: top - 6, y2: top + tall + 6, class: "limit" }, svg("title", {}, "threshold"))] : []),
      ...ticks.map((p) => svg("text", { x: x(p), y: top + tall + 18, "text-anchor": p === ticks[0] ? "start" : p === ticks.at(-1) ? "end" : "middle" }, percent(p, digits))),
    ];
  };
  const parts = [svg("text", { x: left, y: 14 }, svg("tspan", { class: "ink" }, label)), ...row(26, 0, 1, [0, 0.25, 0.5, 0.75, 1], 0)];
  let bottom = 80;
  if (high - low < NARROW) {
    const { from, to, ticks, digits } = closer(low, high);
    const x = (p) => left + p * (right - left);
    parts.push(svg("polygon", { points: `${x(from)},60 ${x(to)},60 ${right},100 ${left},100`, class: "lens" }), ...row(100, from, to, ticks, digits));
    bottom = 154;
  }
  const told = `${label}: ${percent(low)} to ${percent(high)} for 95 % of the margin's distribution, margin ${number(band.margin)} plus or minus ${number(band.spread)} logits.`;
  const note = el(
    "p",
    { class: "legend" },
    el("span", {}, "Margin ", el("b", {}, `${band.margin.toFixed(2)} ± ${band.spread.toFixed(2)}`), " logits"),
    el("span", {}, "95 %: ", el("b", {}, `${percent(low)} to ${percent(high)}`)),
  );
  show(place, svg("svg", { viewBox: `0 0 ${WIDTH} ${bottom}`, role: "img", "aria-label": told }, ...parts), note);
}

// Round ends around a narrow band, at most six ticks between them.
function closer(low, high) {
  const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05].find((one) => 4 * one >= high - low) ?? 0.1;
  const [first, last] = [Math.floor(low / step), Math.ceil(high / step)];
  const ticks = Array.from({ length: Math.max(last, first + 1) - first + 1 }, (_, i) => (first + i) * step);
  return { from: ticks[0], to: ticks.at(-1), ticks, digits: step < 0.01 ? 1 : 0 };
}

const PARTS = { attention: "part-0", all: "part-0", feed_forward: "part-1" }; // as in every picture: attention is blue

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
      const bar = svg("rect", { x: start, y: y + 4, width: part, height: 15, rx: 2, class: PARTS[component] ?? "part-2" }, svg("title", {}, `${layer.name}, ${component.replace("_", "-")}: ${number(value)}`));
      start += part;
      return bar;
    });
    return [svg("text", { x: left - 8, y: y + 16, "text-anchor": "end" }, layer.name), ...bars, svg("text", { x: left + width + 6, y: y + 16, class: "ink" }, percent(layer.share))];
  });
  const told = layers.map((layer) => `${layer.name} ${percent(layer.share)}`).join(", ");
  const parted = layers.some((layer) => "attention" in layer.components);
  const legend = parted ? el("p", { class: "legend" }, el("span", {}, el("i"), "attention"), el("span", {}, el("i", { class: "second" }), "feed-forward"), el("span", {}, el("i", { class: "third" }), "embeddings, head")) : null;
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

// Risk against coverage with its interval, and each risk that is promised at its coverage.
// Above it the thresholds of these coverages; the one that is served is marked.
export function drawMenu(place, menu, served = null) {
  const [width, height, left, bottom, top] = [640, 320, 46, 36, 34];
  const at = (share) => menu.threshold[menu.coverage.findIndex((coverage) => coverage >= share - 1e-9)];
  const chosen = served === null ? undefined : menu.coverage.filter((_, i) => menu.threshold[i] >= served - 1e-9).at(-1);
  const promised = menu.lines.filter((line) => line.coverage !== null);
  const most = niceCeiling(Math.max(...menu.risk, ...menu.high.filter((_, i) => menu.coverage[i] >= 0.2), ...promised.filter((line) => line.coverage < 1).map((line) => line.target), 0.01));
  const x = (coverage) => left + coverage * (width - left - 12);
  const y = (risk) => top + (1 - Math.min(risk, most) / most) * (height - top - bottom);
  const path = (risks) => menu.coverage.map((coverage, i) => `${x(coverage).toFixed(1)},${y(risks[i]).toFixed(1)}`);
  const all = promised.findIndex((line) => line.coverage === 1); // one dot for those that answer all
  const shown = promised.filter((line, i) => line.target <= most && (all < 0 || i <= all));
  const parts = [
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((share) => [
      svg("line", { x1: left, x2: width - 12, y1: y(share * most), y2: y(share * most), class: "grid-line" }),
      svg("text", { x: left - 6, y: y(share * most) + 4, "text-anchor": "end" }, percent(share * most, most < 0.1 ? 1 : 0)),
      svg("text", { x: x(share), y: height - bottom + 16, "text-anchor": "middle" }, percent(share, 0)),
      share && Number.isFinite(at(share)) ? svg("text", { x: x(share), y: top - 6, "text-anchor": "middle" }, at(share).toFixed(2)) : null,
    ]).filter(Boolean),
    svg("text", { x: left, y: 12 }, `${menu.score.replace("-", " ")} above`),
    svg("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "share of calibration rows answered, the most trusted first; the others are to review"),
    ...(chosen === undefined ? [] : [svg("line", { x1: x(chosen), x2: x(chosen), y1: top, y2: height - bottom, class: "chosen" }, svg("title", {}, "served"))]),
    svg("polygon", { points: [...path(menu.high), ...path(menu.low).reverse()].join(" "), class: "area" }),
    svg("polyline", { points: path(menu.risk).join(" "), class: "curve" }),
    ...shown.flatMap((line) => [
      svg("line", { x1: left, x2: x(line.coverage), y1: y(line.target), y2: y(line.target), class: "promise-line" }),
      svg("circle", { cx: x(line.coverage), cy: y(line.target), r: 5, class: "promised" }, svg("title", {}, `at most ${percent(line.target, 0)} wrong: ${percent(line.coverage)} answered`)),
    ]),
  ];
  const told = `Risk at each coverage with its interval. Promised: ${promised.map((line) => `${percent(line.target, 0)} at ${percent(line.coverage)}`).join(", ") || "nothing"}.`;
  show(place, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told }, ...parts));
}

function niceCeiling(value) {
  return [0.02, 0.04, 0.08, 0.12, 0.2, 0.4, 0.6, 0.8, 1].find((limit) => limit >= value) ?? 1;
}
