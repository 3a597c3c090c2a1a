// Three maps of attention on canvases: without modulation, with it, and the difference.

import { byId, el, options, percent, show } from "./dom.js";

const NAMES = 66; // pixels that the tokens' names beside a map have at least, if any is as long
const TEXT = 12; // pixels, the height of their letters at most
const GAP = 6; // pixels between a name and the map
const SMALLEST = 9; // pixels of a cell that can have a name
const KINDS = [
  ["plain", "Without"],
  ["modulated", "With modulation"],
  ["difference", "Difference"],
];
let shown = null;
let cursor = [0, 0];

export function drawAttention(attention, modulates) {
  const place = byId("attention");
  byId("attention-readout").textContent = "";
  byId("layer").disabled = attention === null;
  if (attention === null) {
    shown = null;
    show(place);
    byId("attention-hint").textContent = modulates
      ? "The text has too many tokens to draw its attention."
      : "Nothing modulates attention with these settings: choose a gate and a λ above 0.";
    return;
  }
  const layers = attention.plain.length;
  const select = byId("layer");
  const before = select.value;
  show(select, ...options([["mean", "mean of all"], ...attention.plain.map((_, i) => [String(i), String(i + 1)])], "mean"));
  select.value = before !== "" && (before === "mean" || Number(before) < layers) ? before : "mean";
  shown = attention;
  cursor = [0, 0];
  repaint();
}

export function repaint() {
  if (shown === null) return;
  const chosen = byId("layer").value;
  const pick = (maps) => (chosen === "mean" ? mean(maps) : maps[Number(chosen)]);
  const plain = pick(shown.plain);
  const modulated = pick(shown.modulated);
  const difference = modulated.map((row, i) => row.map((value, j) => value - plain[i][j]));
  const most = Math.max(...plain.flat(), ...modulated.flat());
  const furthest = Math.max(...difference.flat().map(Math.abs), 1e-9);
  byId("attention-hint").textContent = "Rows attend to columns; the mean over heads. Point at a cell, or use the arrow keys.";
  const tell = (row, column) => {
    const [from, to] = [shown.tokens[row], shown.tokens[column]];
    const change = difference[row][column];
    byId("attention-readout").textContent = `${from} → ${to}: ${percent(plain[row][column])} without, ${percent(modulated[row][column])} with, ${change >= 0 ? "+" : "−"}${percent(Math.abs(change), 2)}`;
  };
  const maps = { plain, modulated, difference };
  const ranges = { plain: `0 to ${percent(most, 0)}`, modulated: `0 to ${percent(most, 0)}`, difference: `± ${percent(furthest, 1)}` };
  show(
    byId("attention"),
    ...KINDS.map(([kind, name]) => {
      const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `${name}: attention of ${shown.tokens.length} tokens, ${ranges[kind]}` });
      const [tokens, signed] = [shown.tokens, kind === "difference"];
      new ResizeObserver(() => canvas.isConnected && paint(canvas, maps[kind], tokens, signed ? furthest : most, signed)).observe(canvas);
      follow(canvas, tokens, tell);
      return el("figure", {}, el("figcaption", {}, name, el("small", {}, ranges[kind])), canvas);
    }),
  );
}

function mean(maps) {
  return maps[0].map((row, i) => row.map((_, j) => maps.reduce((sum, map) => sum + map[i][j], 0) / maps.length));
}

const font = (size) => `${size}px system-ui, sans-serif`;

// The pixels for the names: for the longest one if the cells stay large enough, and none where that leaves too few.
function margin(canvas, side, tokens) {
  const context = canvas.getContext("2d");
  context.font = font(TEXT);
  const longest = 2 * GAP + Math.max(...tokens.map((token) => context.measureText(token).width));
  const room = Math.min(side / 2, side - SMALLEST * tokens.length);
  return room < Math.min(NAMES, longest) ? 0 : Math.min(longest, room);
}

function paint(canvas, map, tokens, most, signed) {
  const style = getComputedStyle(document.documentElement);
  const tint = (name) => resolved(style.getPropertyValue(name).trim());
  const [ground, accent, heat, cold, ink] = ["--sunk", "--accent", "--heat", "--cold", "--muted"].map(tint);
  const side = canvas.clientWidth;
  const sharp = window.devicePixelRatio || 1;
  canvas.width = canvas.height = Math.round(side * sharp);
  const context = canvas.getContext("2d");
  context.scale(sharp, sharp);
  const edge = margin(canvas, side, tokens);
  const cell = (side - edge) / tokens.length;
  const gap = cell > 6 ? 0.8 : 0;
  map.forEach((row, i) =>
    row.forEach((value, j) => {
      const strength = Math.min(1, Math.abs(value) / most) ** 0.5;
      context.fillStyle = mix(ground, signed ? (value < 0 ? cold : heat) : accent, strength);
      context.fillRect(edge + j * cell, edge + i * cell, cell - gap, cell - gap);
    }),
  );
  if (edge === 0) return;
  context.fillStyle = `rgb(${ink.join(" ")})`;
  context.font = font(Math.min(TEXT, cell * 0.95));
  context.textBaseline = "middle";
  tokens.forEach((token, i) => {
    let name = token;
    while (name.length > 2 && context.measureText(name).width > edge - GAP) name = `${name.slice(0, -2)}…`;
    const middle = edge + (i + 0.5) * cell;
    context.textAlign = "right";
    context.fillText(name, edge - GAP, middle);
    context.save();
    context.translate(middle, edge - GAP);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(name, 0, 0);
    context.restore();
  });
}

// A colour of the style sheet as [r, g, b]: the browser resolves light-dark() when it is set on an element.
function resolved(colour) {
  const probe = el("span", { hidden: true });
  probe.style.color = colour;
  document.body.append(probe);
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

const mix = (from, to, share) => `rgb(${from.map((value, i) => Math.round(value + (to[i] - value) * share)).join(" ")})`;

function follow(canvas, tokens, tell) {
  const count = tokens.length;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const edge = margin(canvas, box.width, tokens);
    const at = (offset, size) => Math.floor(((offset - edge) / (size - edge)) * count);
    const [row, column] = [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
    if (row >= 0 && column >= 0 && row < count && column < count) tell(...(cursor = [row, column]));
  };
  canvas.addEventListener("pointermove", place);
  canvas.addEventListener("pointerdown", place);
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    cursor = cursor.map((value, axis) => Math.min(count - 1, Math.max(0, value + step[axis])));
    tell(...cursor);
  });
}
