// λ, M and the gate: what the passes of the next explanation are made with.

import { byId, options, show } from "./dom.js";
import { onThreshold, resetThreshold, threshold } from "./threshold.js";

const GATES = {
  none: "none: plain MC dropout",
  q: "q: the query's row",
  k: "k: the key's column",
  qk: "qk: both",
  v: "v: the values",
  qkv: "qkv: all three",
};
let served = null;
let calibrated = false;

export function startSettings(model, onChange) {
  served = model.settings;
  calibrated = model.calibration !== null;
  show(byId("gate"), ...options(model.gates.map((gate) => [gate, GATES[gate] ?? gate]), served.gate));
  byId("samples-row").hidden = served.samples === null;
  byId("penalty").max = Math.max(3, served.penalty);
  byId("samples").max = Math.max(32, served.samples ?? 0);
  for (const id of ["penalty", "samples", "gate"]) {
    byId(id).addEventListener("input", () => {
      tell();
      onChange();
    });
  }
  byId("reset").addEventListener("click", () => {
    restore();
    resetThreshold();
    onChange();
  });
  onThreshold(tell);
  restore();
}

function restore() {
  byId("penalty").value = served.penalty;
  byId("samples").value = served.samples ?? 2;
  byId("gate").value = served.gate;
  tell();
}

// Only what differs from the served settings is sent.
export function chosenSettings() {
  const own = { penalty: Number(byId("penalty").value), samples: Number(byId("samples").value), gate: byId("gate").value };
  if (served.samples === null) delete own.samples;
  return Object.fromEntries(Object.entries(own).filter(([name, value]) => value !== served[name]));
}

function tell() {
  byId("penalty-out").textContent = Number(byId("penalty").value).toFixed(2);
  byId("samples-out").textContent = byId("samples").value;
  const other = Object.keys(chosenSettings()).length > 0;
  byId("reset").hidden = !(other || threshold.moved);
  byId("off").hidden = !(calibrated && (other || threshold.moved));
  byId("off").textContent = other
    ? "These are not the settings that were calibrated. The calibrator is applied as it is, and what was promised is off."
    : "This is not the threshold that was calibrated: what was promised for it is off.";
}
