// One text with several answers: its entities, shaded by confidence, or its labels as bars with their thresholds.

import { post } from "./api.js";
import { drawLayers } from "./charts.js";
import { byId, el, measured, number, percent, settled, show } from "./dom.js";
import { drawWords } from "./words.js";

const EXAMPLES = {
  labels: ["Thank you so much, I did not expect that!", "What is this supposed to be?", "I miss her, and I am so angry at myself."],
  entities: ["Ada Lovelace met Charles Babbage in London.", "Flights from Lagos to JFK are late again", "Apple opens a shop in Jordan, says Jordan."],
};
const PAUSE = 350;
const SHOWN = 8; // labels before "show all"
const LIKELY_MISSED = 0.2; // the place where an entity may be missed is marked from this probability on
let model = null;
let found = null;
let under = null;
let all = false;
let onFault = () => {};

export function startSeveral(served, { fault }) {
  model = served;
  onFault = fault;
  byId("several").hidden = false;
  byId("labels-card").hidden = model.kind !== "labels";
  byId("entities-card").hidden = model.kind !== "entities";
  const text = byId("several-text");
  text.addEventListener("input", settled(() => ask(), PAUSE));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  const look = (example) => {
    text.value = example;
    ask();
  };
  show(byId("several-examples"), ...EXAMPLES[model.kind].map((one) => el("button", { type: "button", onclick: () => look(one) }, one.length > 24 ? `${one.slice(0, 22)} …` : one)));
  byId("several-promise").textContent = model.rule?.promise ?? "No rule was calibrated: what is likelier than not is shown as reported, and nothing is promised.";
  byId("all-labels").addEventListener("click", () => {
    all = !all;
    labels();
  });
  text.focus({ preventScroll: true });
}

// `which` is the label or the entity to explain; by default the service takes the one that is least sure.
async function ask(which = {}) {
  under?.abort();
  const text = byId("several-text").value;
  shown(Boolean(text.trim()) && found !== null);
  if (!text.trim()) return;
  under = new AbortController();
  const mine = under;
  byId("answers").setAttribute("aria-busy", "true");
  try {
    const [reply, refused] = await answered(text, which, mine.signal);
    found = { text, ...reply };
    onFault(refused);
    draw();
  } catch (error) {
    if (!mine.signal.aborted) onFault(error);
  } finally {
    if (mine === under) byId("answers").setAttribute("aria-busy", "false");
  }
}

// Where a text cannot be explained, as it is too long for instance, its answers are shown all the same, and why.
async function answered(text, which, signal) {
  try {
    return [await post("explain", { text, ...which }, signal), null];
  } catch (error) {
    if (error.status !== 422) throw error;
    const { predictions } = await post("predict", { texts: [text] }, signal);
    return [{ answer: predictions[0], label: null, entity: null, origins: null }, error];
  }
}

function shown(is) {
  byId("several-found").hidden = !is;
  byId("several-empty").hidden = is;
}

function draw() {
  shown(true);
  decision();
  if (model.kind === "labels") labels();
  else entities();
  origins();
}

function decision() {
  const { answer } = found;
  const names = model.kind === "labels" ? answer.labels : answer.entities.filter((one) => one.decision === "reported").map((one) => one.text);
  const nothing = model.kind === "labels" ? "no label reported" : "no entity reported";
  const card = byId("several-decision");
  card.className = `card decision ${answer.abstain === null ? "open" : answer.abstain ? "abstains" : ""}`;
  const missed = answer.missed === undefined ? null : `An entity is missed with probability ${percent(answer.missed)}.`;
  show(
    card,
    el(
      "p",
      { class: "verdict" },
      el("b", {}, names.join(", ") || nothing),
      el("span", { class: "badge" }, answer.abstain === null ? "no rule" : answer.abstain ? "a person should look" : names.length ? "reported" : "answered"),
      answer.abstain ? el("span", { class: "badge warn reason" }, answer.reason) : null,
      answer.cut_tokens ? el("span", { class: "hint" }, `${answer.cut_tokens} tokens were cut off`) : null,
    ),
    el("p", { class: "sentences" }, [`${answer.why[0].toUpperCase()}${answer.why.slice(1)}.`, missed].filter(Boolean).join(" ")),
    answer.scope === null ? null : el("p", { class: "promise" }, `Scope: p-value ${number(answer.scope)}${answer.out_of_scope ? ", no text of this task" : ""}.`),
  );
}

// Labels as bars, the likeliest first; the line on each is the probability above which it is reported.
function labels() {
  const { decisions } = found.answer;
  const sorted = [...decisions].sort((a, b) => b.probability - a.probability);
  const kept = sorted.filter((one, rank) => all || rank < SHOWN || one.decision !== "no" || one.label === found.label);
  byId("all-labels").hidden = decisions.length <= SHOWN;
  byId("all-labels").textContent = all ? "Show fewer" : `Show all ${decisions.length}`;
  show(byId("labels"), ...kept.map(labelRow));
}

function labelRow(one) {
  const fill = el("div", { class: "fill" });
  fill.style.width = `${100 * one.probability}%`;
  const track = el("div", { class: "track" }, fill);
  if (one.threshold !== null) {
    const line = el("i", { class: "tick", title: `reported above ${percent(one.threshold)}` });
    line.style.left = `${100 * one.threshold}%`;
    track.append(line);
  }
  const told = `${one.label}: ${percent(one.probability)}, ${one.decision}${one.threshold === null ? "" : `, reported above ${percent(one.threshold)}`}`;
  return el(
    "button",
    { type: "button", class: `label-row ${one.decision}`, "aria-pressed": String(one.label === found.label), "aria-label": told, onclick: () => ask({ label: one.label }) },
    el("span", { class: "name" }, one.label),
    el("span", { class: "value" }, one.decision === "no" ? null : el("small", { class: one.decision === "withheld" ? "badge warn" : "badge" }, one.decision), percent(one.probability)),
    track,
  );
}

// The text itself; each entity is a button on a ground that is stronger the surer it is.
function entities() {
  const { text, answer } = found;
  const place = byId("entities");
  const parts = [];
  let last = 0;
  const missed = answer.missed_at !== null && answer.missed >= LIKELY_MISSED ? answer.missed_at : null;
  const plain = (to) => {
    if (missed && missed[0] >= last && missed[1] <= to) {
      const told = `an entity may be missed here; in the text one is missed with probability ${percent(answer.missed)}`;
      parts.push(text.slice(last, missed[0]), el("span", { class: "missed", title: told }, text.slice(...missed)), text.slice(missed[1], to));
    } else parts.push(text.slice(last, to));
    last = to;
  };
  answer.entities.forEach((one, number) => {
    plain(one.start);
    parts.push(entity(one, number));
    last = one.end;
  });
  plain(text.length);
  show(place, ...parts);
  byId("entities-hint").textContent = answer.entities.length ? "The stronger the ground, the surer; a dashed frame is withheld. Click an entity to see where its uncertainty comes from." : "No entity is found in this text.";
}

function entity(one, place) {
  const told = `${one.text}: ${one.label}, ${percent(one.confidence)} sure, ${one.decision}`;
  const button = el(
    "button",
    { type: "button", class: `entity ${one.decision}`, "aria-pressed": String(place === found.entity), "aria-label": told, title: told, onclick: () => ask({ entity: place }) },
    one.text,
    el("small", {}, `${one.label} ${percent(one.confidence, 0)}`),
  );
  const colour = one.decision === "withheld" ? "--abstain" : "--answer";
  button.style.background = `color-mix(in srgb, var(${colour}) ${(6 + 44 * one.confidence).toFixed(0)}%, transparent)`;
  return button;
}

function origins() {
  const { origins: from, answer } = found;
  byId("origins-card").hidden = from === null;
  if (from === null) return;
  const one = model.kind === "labels" ? answer.decisions.find(({ label }) => label === found.label) : answer.entities[found.entity];
  const name = model.kind === "labels" ? one.label : `“${one.text}” (${one.label})`;
  byId("origins-title").textContent = `Where the uncertainty about ${name} comes from`;
  byId("origins-summary").textContent = from.summary;
  const words = from.words.map((word) => ({ ...word, masked_confidence: null }));
  drawWords(byId("origin-words"), byId("origin-readout"), { segments: [words], answer: { label: name, confidence: one.confidence ?? one.probability } }, "share");
  drawLayers(byId("origin-layers"), from.layers.map((layer) => ({ ...layer, components: { all: layer.share } })));
  const rows =
    model.kind === "labels"
      ? [["Probability", "that it applies", percent(one.probability, 2)], ["Reported above", "", one.threshold === null ? "–" : percent(one.threshold, 2)]]
      : [["Confidence", "that span and type are right", percent(one.confidence, 2)], ["Boundaries", "of any type, before calibration", percent(one.boundaries, 2)]];
  rows.push(["Log-odds", "before calibration", number(one.log_odds)], ["Variance", "of the log-odds, as predicted", measured(one.variance)], ["Variance", "to first order, as explained here", number(from.variance)]);
  show(byId("origin-numbers"), ...rows.map(([title, note, value]) => el("div", {}, el("dt", {}, title, note ? el("small", {}, note) : null), el("dd", {}, value))));
}
