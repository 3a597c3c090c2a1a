// What the served model can promise: the menu of risks, and how it compares with temperature scaling.

import { drawMenu } from "./charts.js";
import { byId, el, percent, show } from "./dom.js";

export function showPromises(model) {
  const { menu, comparison } = model;
  byId("about").hidden = menu === null && comparison === null;
  byId("menu").hidden = menu === null;
  show(byId("comparison"), comparison);
  byId("about-short").textContent = menu ? short(menu) : "";
  if (menu === null) return;
  const level = percent(menu.confidence, 0);
  const several = menu.coverage.length === 0; // of several answers a text there is no curve, and texts are the rows
  const told = several ? "Of the answers that are reported, the share that is wrong." : `Of the rows that are answered, the share that is wrong, with its ${level} interval; a dot is a risk that can be promised.`;
  byId("menu-hint").textContent = `${told} By ${menu.score.replace("-", " ")}: ${menu.counted}.`;
  byId("menu").className = several ? "" : "grid wide";
  if (several) show(byId("menu-curve"));
  else drawMenu(byId("menu-curve"), menu);
  show(
    byId("menu-lines"),
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "At most wrong"), el("th", { scope: "col" }, several ? "Reported" : "Answered"))),
    el("tbody", {}, ...menu.lines.map((line) => row(line, model.rule?.score === menu.score && line.coverage !== null && line.threshold === model.rule.threshold))),
  );
}

function row(line, served) {
  const said = line.coverage === null ? ["no promise", el("small", {}, line.needed)] : [el("b", {}, percent(line.coverage)), line.coverage === 1 ? null : el("small", {}, line.coverage_interval.map((end) => percent(end)).join(" to "))];
  return el("tr", { class: line.coverage === null ? "unpromised" : null }, el("td", {}, percent(line.target, 0)), el("td", {}, ...said, served ? el("span", { class: "badge" }, "served") : null));
}

// The promises up to the first that answers all: "5 % wrong at 65 % answered, 8 % at 82 %".
function short(menu) {
  const promised = menu.lines.filter((line) => line.coverage !== null);
  const all = promised.findIndex((line) => line.coverage === 1);
  const shown = all < 0 ? promised : promised.slice(0, all + 1);
  return shown.map((line, i) => `${percent(line.target, 0)} ${i ? "" : "wrong "}at ${percent(line.coverage, 0)}${i ? "" : menu.coverage.length ? " answered" : " reported"}`).join(", ") || "none of the risks on the menu";
}
