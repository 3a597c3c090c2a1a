// Where the page begins: what is served, the two views, the token.

import { get, useToken, whenLocked } from "./api.js";
import { repaint } from "./attention.js";
import { byId, el, show } from "./dom.js";
import { startMany } from "./many.js";
import { look, startOne } from "./one.js";
import { showPromises } from "./promises.js";
import { startSeveral } from "./several.js";
import { startTheme } from "./theme.js";
import { startThreshold } from "./threshold.js";

const TABS = ["one", "many"];
const TRAFFIC = { green: "the texts are as at calibration", amber: "the texts have changed, the answers look right", red: "the texts have changed, the answers are in doubt" };
const NOUNS = { one: "classes", choice: "classes", labels: "labels", entities: "types of entities" };

function fault(error) {
  byId("alert").hidden = error === null;
  byId("alert").textContent = error === null ? "" : error instanceof TypeError ? "The service does not answer. Is it still running?" : error.message;
}

function choose(name) {
  for (const tab of TABS) {
    const button = byId(`tab-${tab}`);
    button.setAttribute("aria-selected", tab === name);
    button.tabIndex = tab === name ? 0 : -1;
    byId(tab).hidden = tab !== name;
  }
}

function startTabs() {
  for (const name of TABS) {
    byId(`tab-${name}`).addEventListener("click", () => choose(name));
    byId(`tab-${name}`).addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const other = TABS[(TABS.indexOf(name) + 1) % TABS.length];
      choose(other);
      byId(`tab-${other}`).focus();
    });
  }
}

function describe(model) {
  const classes = model.classes.length ? `${model.classes.length} ${NOUNS[model.kind]}: ${model.classes.slice(0, 6).join(", ")}${model.classes.length > 6 ? ", …" : ""}` : "multiple choice";
  const parts = [model.architecture, classes, `method ${model.method}, ${model.passes === 1 ? "one pass" : `${model.passes} passes`}`];
  show(byId("served"), ...parts.map((part) => el("span", {}, part)), el("strong", {}, model.calibration ? "calibrated" : "not calibrated"), model.watch?.level ? el("span", { class: model.watch.level, title: model.watch.verdict }, TRAFFIC[model.watch.level]) : null);
  byId("served").title = (model.calibration ?? []).join("\n");
}

async function start() {
  let model;
  try {
    model = await get("model");
  } catch (error) {
    fault(error.status === 401 ? null : error);
    return;
  }
  describe(model);
  showPromises(model);
  const hooks = {
    fault,
    look: (text) => {
      choose("one");
      look(text);
      scrollTo({ top: 0 });
    },
  };
  if (["labels", "entities"].includes(model.kind)) {
    byId("tabs").hidden = true;
    byId("one").hidden = true;
    startSeveral(model, hooks);
    return;
  }
  startThreshold(model);
  startOne(model, hooks);
  startMany(model, hooks);
  byId("text").focus({ preventScroll: true });
}

whenLocked(() => {
  byId("access").hidden = false;
  byId("token").focus();
});
byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(byId("token").value);
  byId("access").hidden = true;
  start();
});
startTabs();
startTheme(repaint);
start();
