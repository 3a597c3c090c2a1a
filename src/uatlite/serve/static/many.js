// A file of texts: read here, classified in pieces, sorted by what to review first.

import { get, post } from "./api.js";
import { drawCurve } from "./charts.js";
import { delimiterOf, format, parse } from "./csv.js";
import { byId, el, measured, number, options, percent, settled, show } from "./dom.js";
import { answers, onThreshold, threshold } from "./threshold.js";

const MOST_ROWS = 20000;
const MOST_POINTS = 500; // of a curve; a screen shows no more
const MOST_BYTES = 32 * 2 ** 20;
const PIECE = 32;
const AT_ONCE = 2;
const PAGE = 50;
const NAMES = {
  text: ["text", "sentence", "review", "body", "content", "premise", "question", "sentence1", "text_a"],
  pair: ["text_pair", "hypothesis", "sentence2", "context", "text_b", "pair"],
  label: ["label", "gold", "class", "target", "truth", "sentiment", "stars"],
};
const ORDERS = {
  review: ["what to review first", (a, b) => a.answer.score - b.answer.score],
  disagreement: ["most mutual information", (a, b) => (b.answer.uncertainty.mutual_information ?? 0) - (a.answer.uncertainty.mutual_information ?? 0)],
  scope: ["least in scope", (a, b) => (a.answer.scope ?? 1) - (b.answer.scope ?? 1)],
  wrong: ["surest errors", (a, b) => Number(a.right !== false) - Number(b.right !== false) || b.answer.score - a.answer.score],
  file: ["order of the file", (a, b) => a.line - b.line],
};
const COLUMNS = ["label", "answered", "reason", "above_threshold", "cut_tokens", "confidence", "score", "margin", "logit_margin", "entropy", "expected_entropy", "mutual_information", "variance", "scope", "out_of_scope", "passes"];
const [OUTSIDE, BELOW, CUT, ANSWERED] = ["out of scope", "below the threshold", "cut", "answered"]; // as the service names its reasons

let model = null;
let hooks = {};
let table = { header: [], rows: [] };
let scored = [];
let curve = null;
let watched = null; // the verdict on all texts of the service: a piece of a file is too little to tell by
let pages = 1;
let stopping = null;

export function startMany(served, given) {
  model = served;
  hooks = given;
  byId("file").addEventListener("change", (event) => read(event.target.files[0]));
  const drop = byId("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") read(event.dataTransfer.files[0]);
    });
  }
  byId("run").addEventListener("click", run);
  byId("stop").addEventListener("click", () => stopping?.abort());
  byId("order").addEventListener("change", () => turn(1));
  byId("more").addEventListener("click", () => turn(pages + 1));
  byId("download").addEventListener("click", download);
  onThreshold(settled(() => scored.length && draw(), 30));
}

async function read(file) {
  if (!file) return;
  if (file.size > MOST_BYTES) {
    hooks.fault(new Error(`The file has ${file.size} bytes; this page takes ${MOST_BYTES}. Use uatlite predict for more.`));
    return;
  }
  const text = await file.text();
  const [header, ...rows] = parse(text, delimiterOf(text));
  if (!header || rows.length === 0) {
    hooks.fault(new Error("The file has no rows below a header."));
    return;
  }
  hooks.fault(rows.length > MOST_ROWS ? new Error(`The file has ${rows.length} rows; the first ${MOST_ROWS} are taken. Use uatlite predict for more.`) : null);
  table = { header, rows: rows.slice(0, MOST_ROWS) };
  const none = ["", "none"];
  const all = header.map((name, column) => [String(column), name || `column ${column + 1}`]);
  show(byId("column-text"), ...options(all, guess("text") ?? longest()));
  show(byId("column-pair"), ...options([none, ...all], guess("pair") ?? ""));
  show(byId("column-label"), ...options([none, ...all], guess("label") ?? ""));
  byId("columns").hidden = false;
  byId("drop").querySelector("span").textContent = `${file.name}: ${table.rows.length} rows. Choose another`;
  byId("run").focus();
}

function guess(role) {
  const names = table.header.map((name) => name.trim().toLowerCase());
  const found = NAMES[role].map((name) => names.indexOf(name)).find((column) => column >= 0);
  return found === undefined ? null : String(found);
}

function longest() {
  const sizes = table.header.map((_, column) => table.rows.slice(0, 50).reduce((sum, row) => sum + (row[column]?.length ?? 0), 0));
  return String(sizes.indexOf(Math.max(...sizes)));
}

function asked() {
  const column = (id) => (byId(id).value === "" ? null : Number(byId(id).value));
  const [text, pair, label] = ["column-text", "column-pair", "column-label"].map(column);
  const good = [];
  let skipped = 0;
  table.rows.forEach((row, index) => {
    const parts = [row[text] ?? "", ...(pair === null ? [] : [row[pair] ?? ""])];
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    if (parts.every((part) => part.trim()) && size <= model.limits.characters) {
      good.push({ line: index + 2, row, text: pair === null ? parts[0] : parts, truth: label === null ? null : truth(row[label] ?? "") });
    } else skipped += 1;
  });
  return { good, skipped, labelled: label !== null };
}

// The class that a label names, by name or by number; undefined where it is none of the model's.
function truth(label) {
  const plain = label.trim().toLowerCase();
  const place = model.classes.findIndex((name) => name.toLowerCase() === plain);
  return place >= 0 ? model.classes[place] : model.classes[/^\d+$/.test(plain) ? Number(plain) : -1];
}

async function run() {
  stopping?.abort();
  stopping = new AbortController();
  const mine = stopping;
  const { good, skipped, labelled } = asked();
  const size = Math.min(PIECE, model.limits.texts);
  const pieces = [];
  for (let start = 0; start < good.length; start += size) pieces.push(good.slice(start, start + size));
  scored = [];
  byId("progress").hidden = false;
  const begun = performance.now();
  const worker = async () => {
    for (let piece = pieces.shift(); piece && !mine.signal.aborted; piece = pieces.shift()) {
      const reply = await post("predict", { texts: piece.map((one) => one.text) }, mine.signal);
      scored.push(...piece.map((one, i) => ({ ...one, answer: reply.predictions[i] })).filter((one) => !one.answer.error));
      advance(scored.length, good.length, begun);
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    hooks.fault(null);
  } catch (error) {
    if (!mine.signal.aborted) hooks.fault(error);
    mine.abort();
  }
  if (mine !== stopping) return;
  watched = await get("model").then((served) => served.watch, () => null);
  finish(labelled, skipped);
}

function advance(done, all, begun) {
  const speed = (1000 * done) / (performance.now() - begun);
  [byId("done").value, byId("done").max] = [done, all];
  byId("done-text").textContent = `${done} of ${all}, ${speed.toFixed(0)} a second`;
}

function finish(labelled, skipped) {
  for (const one of scored) one.right = one.truth ? String(one.answer.label) === one.truth : null;
  const known = scored.filter((one) => one.right !== null);
  curve = known.length ? riskCoverage(known) : null;
  const unknown = labelled ? scored.length - known.length : 0;
  const notes = [skipped ? `${skipped} rows without a usable text were left out` : "", unknown ? `${unknown} labels are none of ${model.classes.join(", ")}` : ""].filter(Boolean);
  byId("done-text").textContent += notes.length ? ` · ${notes.join(" · ")}` : "";
  const known_of = { wrong: curve !== null, scope: scored.some((one) => one.answer.scope !== null), disagreement: scored.some((one) => one.answer.uncertainty.mutual_information !== null) };
  const orders = Object.entries(ORDERS).filter(([name]) => known_of[name] ?? true);
  show(byId("order"), ...options(orders.map(([name, [title]]) => [name, title]), "review"));
  byId("scored").hidden = scored.length === 0;
  if (scored.length === 0) return;
  turn(1);
  draw();
  byId("scored").scrollIntoView({ block: "nearest" });
}

// The share of wrong answers at every share of answered rows, from the highest score down; rows of one score share
// their errors evenly. The area under it is the mean risk over all coverages.
function riskCoverage(known) {
  const ranked = [...known].sort((a, b) => b.answer.score - a.answer.score);
  const risks = [];
  let wrong = 0;
  for (let start = 0, end = 0; start < ranked.length; start = end) {
    while (end < ranked.length && ranked[end].answer.score === ranked[start].answer.score) end += 1;
    const errors = ranked.slice(start, end).filter((one) => !one.right).length;
    for (let k = start + 1; k <= end; k += 1) risks.push((wrong + (errors * (k - start)) / (end - start)) / k);
    wrong += errors;
  }
  const step = Math.max(1, (risks.length - 1) / (MOST_POINTS - 1));
  const shown = Array.from({ length: Math.min(risks.length, MOST_POINTS) }, (_, i) => Math.round(i * step));
  return { coverage: shown.map((k) => (k + 1) / risks.length), risk: shown.map((k) => risks[k]), aurc: risks.reduce((sum, risk) => sum + risk, 0) / risks.length, accuracy: 1 - wrong / risks.length };
}

// What comes of the threshold: rows answered, and of the labelled ones how many wrongly.
function outcome() {
  const answered = scored.filter((one) => answers(one.answer) !== false);
  const known = answered.filter((one) => one.right !== null);
  const wrong = known.filter((one) => !one.right).length;
  const all = scored.filter((one) => one.right !== null).length;
  return { answered: answered.length, risk: known.length ? wrong / known.length : 0, coverage: all ? known.length / all : 0, wrong };
}

function draw() {
  const here = outcome();
  const outside = scored.filter((one) => one.answer.out_of_scope).length;
  const tile = (value, name) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, name));
  show(
    byId("tiles"),
    tile(String(scored.length), "rows"),
    tile(percent(here.answered / scored.length), "answered"),
    tile(String(scored.length - here.answered), "to review"),
    curve ? tile(percent(curve.accuracy), "right, had it answered all") : null,
    curve ? tile(percent(here.risk), "of the answers are wrong") : null,
    curve ? tile(number(curve.aurc), "AURC, lower is better") : null,
    scored[0].answer.out_of_scope === null ? null : tile(String(outside), "out of scope"),
  );
  byId("curve-hint").textContent = curve ? "Of the rows that are answered, the share that is wrong; the dashed line is the threshold." : "Choose the column of true labels to see it.";
  if (curve) drawCurve(byId("curve"), curve, here);
  else show(byId("curve"));
  byId("many-promise").textContent = model.rule && !threshold.moved ? model.rule.promise : model.rule ? "Not the calibrated threshold: what was promised for it is off." : "The model has no rule to abstain by; the threshold is yours.";
  byId("many-shift").textContent = watched?.verdict ?? "";
  byId("many-shift").className = watched?.level ?? "hint";
  rows();
}

function turn(page) {
  pages = page;
  rows();
}

function rows() {
  const sorted = [...scored].sort(ORDERS[byId("order").value]?.[1] ?? ORDERS.review[1]);
  const shown = sorted.slice(0, pages * PAGE);
  const labelled = curve !== null;
  const scoped = scored.some((one) => one.answer.scope !== null);
  const head = ["Row", "Text", "Label", ...(labelled ? ["Truth"] : []), "Confidence", "MI", ...(scoped ? ["Scope"] : []), "Decision"];
  show(
    byId("rows"),
    el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col", class: ["Confidence", "MI", "Scope", "Row"].includes(name) ? "number" : null }, name)))),
    el("tbody", {}, ...shown.map((one) => tableRow(one, labelled, scoped))),
  );
  byId("more").hidden = shown.length === scored.length;
  byId("more").textContent = `Show ${Math.min(PAGE, scored.length - shown.length)} more of ${scored.length}`;
}

function tableRow({ line, text, answer, truth: gold, right }, labelled, scoped) {
  const whole = Array.isArray(text) ? text.join(" ⏵ ") : text;
  const excerpt = whole.length > 180 ? `${whole.slice(0, 178)} …` : whole;
  const [answered, reason] = [answers(answer), reasonOf(answer)];
  const outside = answer.out_of_scope ? OUTSIDE : null;
  return el(
    "tr",
    {},
    el("td", { class: "number" }, String(line)),
    el("td", { class: "words-cell" }, el("button", { class: "link", title: "Look at this text", onclick: () => hooks.look(text) }, excerpt)),
    el("td", {}, String(answer.label)),
    labelled ? el("td", { class: right === null ? null : right ? "right-label" : "wrong-label" }, gold ?? "unknown") : null,
    el("td", { class: "number" }, percent(answer.confidence)),
    el("td", { class: "number" }, measured(answer.uncertainty.mutual_information)),
    scoped ? el("td", { class: "number" }, measured(answer.scope)) : null,
    el("td", {}, answered === null ? "–" : answered ? "answer" : "review", outside ? el("span", { class: "badge warn" }, outside) : null, [OUTSIDE, ANSWERED].includes(reason) ? null : el("small", { class: "hint" }, ` ${threshold.moved ? reason : answer.why}`)),
  );
}

// Why a row is answered or not: as the service says until the threshold is moved.
function reasonOf(answer) {
  if (!threshold.moved) return answer.reason;
  return answer.out_of_scope ? OUTSIDE : answers(answer) === false ? BELOW : answer.cut_tokens ? CUT : ANSWERED;
}

function download() {
  const own = COLUMNS.map((name) => (table.header.includes(name) ? `predicted_${name}` : name));
  const classes = Object.keys(scored[0].answer.probabilities);
  const body = [...scored]
    .sort(ORDERS.file[1])
    .map(({ row, answer }) => {
      const flat = { ...answer, ...answer.uncertainty, answered: answers(answer), reason: reasonOf(answer), ...(threshold.moved ? { above_threshold: answer.score - threshold.value } : {}) };
      return [...table.header.map((_, column) => row[column]), ...COLUMNS.map((name) => flat[name]), ...classes.map((name) => answer.probabilities[name])];
    });
  const text = format([[...table.header, ...own, ...classes.map((name) => `p_${name}`)], ...body]);
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  const link = el("a", { href: address, download: "predictions.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
