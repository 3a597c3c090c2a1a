// Light, dark, or as the system says.

import { byId } from "./dom.js";

const NAMES = { auto: "as the system", light: "light", dark: "dark" };
const ORDER = Object.keys(NAMES);

export function startTheme(onChange) {
  let chosen = localStorage.getItem("theme") ?? "auto";
  const apply = () => {
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    byId("theme").setAttribute("aria-label", `Colours: ${NAMES[chosen]}`);
    byId("theme").title = `Colours: ${NAMES[chosen]}`;
    onChange();
  };
  byId("theme").addEventListener("click", () => {
    chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
    localStorage.setItem("theme", chosen);
    apply();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", onChange);
  apply();
}
