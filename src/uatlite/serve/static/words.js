// The words of a text, coloured by what the service says of each.

import { el, number, percent, show } from "./dom.js";

const STRONGEST = 68; // per cent of the heat colour in the ground of the strongest word
const DARKEST = 0.5; // shares and changes from this one on have that colour

const SHADINGS = {
  share: { value: (word) => word.share, darkest: DARKEST, told: () => "The darker a word, the larger its share of the variance." },
  masking: {
    value: (word, sure) => (word.masked_confidence === null ? 0 : sure - word.masked_confidence),
    darkest: DARKEST,
    told: (label) => `Orange: without the word the model is less sure of ${label}. Blue: without it, it is surer.`,
  },
  uncertainty: { value: (word) => word.uncertainty, told: () => "The darker a word, the more its embedding moves under dropout (U) beside the other words." },
};

export function drawWords(place, readout, { segments, answer }, by) {
  const { value, darkest, told } = SHADINGS[by];
  const all = segments.flat();
  const values = all.map((word) => value(word, answer.confidence));
  // Shares and changes mean the same in every text; U has no such scale, so the words of a text are compared.
  const [low, high] = darkest ? [0, darkest] : [Math.min(...values), Math.max(...values)];
  const tell = (word) => () => show(readout, describe(word, answer.label));
  show(
    place,
    ...segments.map((segment) =>
      el(
        "p",
        { class: "words", role: "list" },
        ...segment.map((word) => {
          const span = el("span", { class: "word", role: "listitem", tabindex: 0, "aria-label": describe(word, answer.label), onmouseenter: tell(word), onfocus: tell(word) }, word.text);
          span.style.background = colour(value(word, answer.confidence), low, high);
          return span;
        }),
      ),
    ),
  );
  show(readout, all.length ? `${told(answer.label)} Point at a word, or move to it with Tab.` : "");
}

function colour(value, low, high) {
  const strength = high > low ? (Math.abs(value) - low) / (high - low) : 0;
  return `color-mix(in srgb, var(${value < 0 ? "--cold" : "--heat"}) ${(STRONGEST * Math.min(1, Math.max(0, strength))).toFixed(0)}%, transparent)`;
}

function describe(word, label) {
  const masked = word.masked_confidence === null ? "" : `; masked, the model would be ${percent(word.masked_confidence)} sure of ${label}`;
  return `“${word.text}”: ${percent(word.share)} of the variance, uncertainty U ${number(word.uncertainty)}${masked}`;
}
