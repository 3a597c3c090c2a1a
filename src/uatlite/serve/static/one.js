// One text: typed, sent after a short pause, shown from all sides.

import { post } from "./api.js";
import { drawAttention, repaint } from "./attention.js";
import { drawBand, drawLayers, drawPasses, drawProbabilities } from "./charts.js";
import { byId, el, measured, number, percent, settled, show } from "./dom.js";
import { chosenSettings, startSettings } from "./settings.js";
import { answers, onThreshold, threshold } from "./threshold.js";
import { drawWords } from "./words.js";

const EXAMPLES = ["It is not bad at all.", "A film.", "I expected far more, and yet I could not look away."];
const PAUSE = 350;
const DOTS = ["Passes", "Each dot is one pass with its own dropout masks; the bar is the prediction."];
const BAND = ["Spread", "One pass. The bands hold 50, 80 and 95 % of the Gaussian of its margin; the bar is the prediction."];
let model = null;
let found = null;
let under = null;
let onFault = () => {};

export function startOne(served, { fault }) {
  model = served;
  onFault = fault;
  startSettings(model, settled(ask, 120));
  const soon = settled(ask, PAUSE);
  for (const id of ["text", "pair"]) {
    byId(id).addEventListener("input", soon);
    byId(id).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
    });
  }
  show(byId("examples"), ...(model.multiple_choice ? [] : EXAMPLES.map((text) => el("button", { type: "button", onclick: () => look(text) }, text.length > 24 ? `${text.slice(0, 22)} …` : text))));
  byId("add-pair").addEventListener("click", () => setPair(byId("second").hidden));
  byId("colour").addEventListener("change", () => (byId("colour").value === "masking" ? ask() : words()));
  byId("layer").addEventListener("change", repaint);
  onThreshold(() => found && decide());
  if (model.multiple_choice) askOptions();
}

// Show a text in this view, as if it had been typed.
export function look(text) {
  const parts = Array.isArray(text) ? text : [text];
  byId("text").value = parts[0];
  setPair(parts.length > 1);
  byId("pair").value = parts[1] ?? "";
  ask();
}

function setPair(wanted) {
  byId("second").hidden = !wanted;
  byId("add-pair").setAttribute("aria-expanded", wanted);
  byId("add-pair").textContent = wanted ? "− second text" : "+ second text";
  if (!wanted) byId("pair").value = "";
}

function askOptions() {
  setPair(true);
  byId("text-label").textContent = "Question";
  byId("pair-label").textContent = "Options, one a line";
  byId("add-pair").hidden = true;
}

function typed() {
  const [text, pair] = [byId("text").value, byId("pair").value];
  if (!text.trim()) return null;
  if (model.multiple_choice) {
    const given = pair.split("\n").filter((line) => line.trim());
    return given.length > 1 ? { question: text, options: given } : null;
  }
  if (byId("second").hidden) return text;
  return pair.trim() ? [text, pair] : null;
}

export async function ask() {
  under?.abort();
  const text = typed();
  if (text === null) {
    show_found(false);
    return;
  }
  under = new AbortController();
  const mine = under;
  byId("result").setAttribute("aria-busy", "true");
  try {
    found = await post("explain", { text, settings: chosenSettings(), masking: byId("colour").value === "masking" }, mine.signal);
    onFault(null);
    draw();
  } catch (error) {
    if (!mine.signal.aborted) onFault(error);
  } finally {
    if (mine === under) byId("result").setAttribute("aria-busy", "false");
  }
}

function show_found(is) {
  byId("found").hidden = !is;
  byId("empty").hidden = is;
}

function draw() {
  show_found(true);
  const { answer, before, layers, variance, attention, settings, passes } = found;
  const calibrated = model.calibration !== null;
  byId("probabilities-hint").textContent = calibrated ? "" : "The model was not calibrated, so both are the same.";
  drawProbabilities(byId("probabilities"), before, answer.probabilities);
  words();
  drawLayers(byId("layers"), layers);
  byId("layers-hint").textContent = `Of the margin's variance under dropout, ${number(variance)} to first order.`;
  numbers(answer, passes.length);
  drawAttention(attention, settings.gate !== "none" && settings.penalty > 0);
  decide();
}

function words() {
  if (found) drawWords(byId("words"), byId("word-readout"), found, byId("colour").value);
}

// The sentences come first. The service's own sentence about the decision holds until the threshold is moved.
function decide() {
  const { answer, promised, passes, band, summary, truncated_tokens: cut } = found;
  const answered = answers(answer);
  const card = byId("decision");
  card.className = `card decision ${answered === null ? "open" : answered ? "" : "abstains"}`;
  const promise = model.rule && promised && !threshold.moved ? model.rule.promise : model.rule ? "No promise holds for these settings." : null;
  const reason = answer.out_of_scope ? "out of scope" : answered !== false ? null : threshold.moved ? "below the threshold" : answer.reason;
  const decision = threshold.moved ? compared(answer, answered) : `${summary.decision}${answered === null ? " Move the threshold to see when it would abstain." : ""}`;
  const notes = [
    cut ? `${cut} tokens were cut off` : null,
    answer.label_set ? `label set {${answer.label_set.join(", ")}}` : null,
  ].filter(Boolean);
  show(
    card,
    el(
      "p",
      { class: "verdict" },
      el("b", {}, answered === false ? "Abstain" : String(answer.label)),
      el("span", { class: "badge" }, answered === null ? "no rule to abstain by" : answered ? "answer" : `would say ${answer.label}`),
      reason ? el("span", { class: "badge warn reason" }, reason) : null,
      ...notes.map((note) => el("span", { class: "hint" }, note)),
    ),
    el("p", { class: "sentences" }, `${summary.says} ${decision} ${summary.doubt}`),
    promise ? el("p", { class: "promise" }, promise) : null,
  );
  const classes = Object.keys(answer.probabilities);
  const line = threshold.score === "confidence" && answered !== null ? threshold.value : null;
  [byId("passes-title").textContent, byId("passes-hint").textContent] = band ? BAND : DOTS;
  if (band) drawBand(byId("passes"), String(answer.label), band, line);
  else drawPasses(byId("passes"), classes, passes, answer.probabilities, line);
}

function compared(answer, answered) {
  if (answer.out_of_scope) return `It abstains: the text is out of scope (p-value ${number(answer.scope)}), and no threshold answers it.`;
  const [name, distance] = [threshold.score.replace("-", " "), Math.abs(answer.score - threshold.value)];
  const where = answered ? `${number(distance)} above` : `${number(distance)} below`;
  return `It would ${answered ? "answer" : "abstain"}: its ${name} of ${number(answer.score)} is ${where} the threshold of ${number(threshold.value)}.`;
}

function numbers(answer, passes) {
  const { margin, logit_margin, entropy, expected_entropy, mutual_information, variance } = answer.uncertainty;
  const rows = [
    ["Confidence", "", percent(answer.confidence, 2)],
    ["Margin", "to the second", number(margin)],
    ["Logit margin", "before calibration", number(logit_margin)],
    ["Entropy", "total, nats", number(entropy)],
    ["Expected entropy", "in the data", measured(expected_entropy)],
    ["Mutual information", "in the model", measured(mutual_information)],
    ["Variance", "of the label's probability", measured(variance)],
    ["Passes", "used", String(answer.passes ?? passes)],
    answer.scope === null ? null : ["Scope", answer.out_of_scope ? "p-value, out of scope" : "p-value of being a text of the task", number(answer.scope)],
  ].filter(Boolean);
  show(byId("numbers"), ...rows.map(([name, note, value]) => el("div", {}, el("dt", {}, name, note ? el("small", {}, note) : null), el("dd", {}, value))));
}
