// The threshold that both views share: it moves what is shown, and not what the service promises.

import { byId, number } from "./dom.js";

const SLIDERS = ["threshold", "many-threshold"];
const listeners = [];
export const threshold = { score: "confidence", value: 0.5, served: null, moved: false };

export const onThreshold = (action) => listeners.push(action);

export function startThreshold(model) {
  threshold.score = model.rule?.score ?? "confidence";
  threshold.served = model.rule?.threshold ?? null;
  threshold.value = threshold.served ?? 0.5;
  const classes = Math.max(2, model.classes.length);
  const ends = { confidence: [1 / classes, 1], margin: [0, 1], "logit-margin": [0, 1.1 * (model.menu?.threshold[0] ?? 10)], variance: [-0.25, 0] }[threshold.score] ?? [-Math.log(classes), 0];
  for (const id of SLIDERS) {
    const slider = byId(id);
    [slider.min, slider.max] = [Math.min(ends[0], threshold.value), Math.max(ends[1], threshold.value)];
    slider.step = "any";
    slider.addEventListener("input", () => setThreshold(Number(slider.value)));
    slider.addEventListener("keydown", (event) => nudge(event, slider));
    byId(`${id}-of`).textContent = `of the ${threshold.score.replace("-", " ")}`;
  }
  resetThreshold();
}

// With step="any" the arrow keys would jump by a browser's own idea of a step; a hundredth of the range is ours.
function nudge(event, slider) {
  const way = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
  if (!way) return;
  event.preventDefault();
  const [low, high] = [Number(slider.min), Number(slider.max)];
  setThreshold(Math.min(high, Math.max(low, threshold.value + (way * (high - low)) / 100)));
}

export function resetThreshold() {
  setThreshold(threshold.served ?? 0.5);
  threshold.moved = false;
  listeners.forEach((action) => action());
}

export function setThreshold(value) {
  threshold.value = value;
  threshold.moved = value !== threshold.served;
  for (const id of SLIDERS) {
    byId(id).value = value;
    byId(`${id}-out`).textContent = number(value);
  }
  listeners.forEach((action) => action());
}

// Whether a text is answered: as the service's own rule says until the slider is moved; null without either.
// No threshold answers what is out of scope.
export function answers(answer) {
  if (threshold.moved) return answer.score > threshold.value && !answer.out_of_scope;
  return answer.abstain === null ? null : !answer.abstain;
}
