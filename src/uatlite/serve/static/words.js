// The words of a text, coloured by what the service says of each.

import { el, number, percent, show } from "./dom.js";

const STRONGEST = 68; // per cent of the heat colour in the ground of the strongest word

export function drawWords(place, readout, segments, by) {
  const all = segments.flat();
  const known = all.some((word) => word[by] !== null);
  const values = all.map((word) => word[by] ?? 0);
  const [low, high] = by === "uncertainty" ? [Math.min(...values), Math.max(...values)] : [0, Math.max(...values.map(Math.abs))];
  const tell = (word) => () => show(readout, describe(word));
  show(
    place,
    ...segments.map((segment) =>
      el(
        "p",
        { class: "words", role: "list" },
        ...segment.map((word) => {
          const span = el("span", { class: "word", role: "listitem", tabindex: 0, "aria-label": describe(word), onmouseenter: tell(word), onfocus: tell(word) }, word.text);
          if (known) span.style.background = colour(word[by] ?? 0, low, high);
          return span;
        }),
      ),
    ),
  );
  show(readout, all.length ? "Point at a word, or move to it with Tab." : "");
}

function colour(value, low, high) {
  const strength = high > low ? (Math.abs(value) - low) / (high - low) : 0;
  return `color-mix(in srgb, var(${value < 0 ? "--cold" : "--heat"}) ${(STRONGEST * Math.max(0, strength)).toFixed(0)}%, transparent)`;
}

function describe(word) {
  const masked = word.change === null ? "" : `; masked, the label's probability changes by ${word.change >= 0 ? "+" : "−"}${percent(Math.abs(word.change))}`;
  return `“${word.text}”: uncertainty ${number(word.uncertainty)}, ${percent(word.share)} of the variance${masked}`;
}
