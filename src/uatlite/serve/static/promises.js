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
  else drawMenu(byId("menu-curve"), menu, model.rule?.promised && model.rule.score === menu.score ? model.rule.threshold : null);
  const headings = several ? ["At most wrong", "Of what is reported", "A text"] : ["At most wrong", "Of the answers: answered", "Of all texts: answered"];
  const promised = model.rule?.promised && model.rule.score === menu.score;
  const isServed = (line) => promised && line.coverage !== null && line.threshold === model.rule.threshold;
  const review = (line) => el("tr", {}, el("td", {}, percent(line.target, 0)), el("td", { colspan: 2 }, "to review: of the others at most ", el("b", {}, percent(line.risk_bound ?? 1)), " wrong", badge(isServed(line))));
  show(
    byId("menu-lines"),
    el("thead", {}, el("tr", {}, ...headings.map((heading) => el("th", { scope: "col" }, heading)))),
    el("tbody", {}, ...menu.lines.map((line, i) => el("tr", {}, el("td", {}, percent(line.target, 0)), ...[line, menu.errors[i]].filter(Boolean).map((cell) => answered(cell, isServed(cell)))))),
    el("tbody", { id: "menu-reviews" }, ...menu.reviews.map(review)),
  );
}

function badge(served) {
  return served ? el("span", { class: "badge" }, "served") : null;
}

function answered(line, served) {
  const said = line.coverage === null ? ["no promise", el("small", {}, line.needed)] : [el("b", {}, percent(line.coverage)), line.coverage === 1 ? null : el("small", {}, line.coverage_interval.map((end) => percent(end)).join(" to "))];
  return el("td", { class: line.coverage === null ? "unpromised" : null }, ...said, badge(served));
}

// The promises up to the first that answers all: "5 % wrong at 65 % answered, 8 % at 82 %".
function short(menu) {
  const promised = menu.lines.filter((line) => line.coverage !== null);
  const all = promised.findIndex((line) => line.coverage === 1);
  const shown = all < 0 ? promised : promised.slice(0, all + 1);
  return shown.map((line, i) => `${percent(line.target, 0)} ${i ? "" : "wrong "}at ${percent(line.coverage, 0)}${i ? "" : menu.coverage.length ? " answered" : " reported"}`).join(", ") || "none of the risks on the menu";
}
