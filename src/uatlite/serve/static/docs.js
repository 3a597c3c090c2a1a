// The page of the API, drawn from the specification that this very service gives.

import { byId, el, show } from "./dom.js";
import { startTheme } from "./theme.js";

let schemas = {};
const DEEPEST = 3;

const named = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").pop()] : schema) ?? {};

function kind(schema) {
  if (!schema) return "nothing";
  if (schema.$ref) return schema.$ref.split("/").pop();
  const any = schema.anyOf ?? schema.oneOf;
  if (any) return [...new Set(any.map(kind))].join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.prefixItems) return `[${schema.prefixItems.map(kind).join(", ")}]`;
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object" && schema.additionalProperties) return `object of ${kind(schema.additionalProperties)}`;
  return schema.type ?? "any";
}

function bounds(schema) {
  const limits = { minItems: "at least", maxItems: "at most", minLength: "at least", maxLength: "at most", minimum: "from", maximum: "to" };
  const parts = [schema, ...(schema.anyOf ?? schema.oneOf ?? []), ...(schema.items?.oneOf ?? [])];
  return [...new Set(parts.flatMap((part) => Object.entries(limits).filter(([name]) => part[name] !== undefined && !part.prefixItems).map(([name, word]) => `${word} ${part[name]}${name.endsWith("Items") ? " items" : name.endsWith("Length") ? " characters" : ""}`)))].join(", ");
}

function fields(schema, depth = 0) {
  const { properties = {}, required = [] } = named(schema);
  return Object.entries(properties).flatMap(([name, field]) => {
    const inner = [field, field.items, ...(field.anyOf ?? [])].map((one) => one?.$ref ?? one?.items?.$ref).find(Boolean);
    const row = el(
      "tr",
      {},
      el("td", {}, el("code", {}, `${"    ".repeat(depth)}${name}`), required.includes(name) || depth ? "" : " (optional)"),
      el("td", {}, kind(field)),
      el("td", {}, [field.description ?? "", bounds(field)].filter(Boolean).join("; ")),
    );
    return [row, ...(inner && depth < DEEPEST ? fields({ $ref: inner }, depth + 1) : [])];
  });
}

const table = (schema) => {
  const rows = fields(schema);
  return rows.length ? el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Fields" }, el("table", {}, el("tbody", {}, ...rows))) : el("p", { class: "hint" }, named(schema).description ?? "");
};

function operation(path, method, about) {
  const body = about.requestBody?.content?.["application/json"]?.schema;
  const good = about.responses["200"]?.content?.["application/json"]?.schema;
  const example = named(body).examples?.[0];
  const call = `curl ${location.origin}${path}${example ? ` -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'` : ""}`;
  const refusals = Object.entries(about.responses).filter(([status]) => status !== "200");
  return el(
    "article",
    { class: "card" },
    el("h2", {}, el("span", { class: `method ${method}` }, method.toUpperCase()), el("code", {}, path), about.security ? el("span", { class: "hint" }, " needs the token") : null),
    el("p", {}, about.description ?? about.summary ?? ""),
    el("pre", { tabindex: 0 }, call),
    body ? el("h3", {}, "Request") : null,
    body ? table(body) : null,
    good ? el("h3", {}, "Response") : null,
    good ? table(good) : null,
    method === "post" ? el("details", {}, el("summary", { class: "hint" }, "Refusals"), el("ul", {}, ...refusals.map(([status, reply]) => el("li", {}, el("code", {}, status), ` ${reply.description}`)))) : null,
  );
}

const specification = await (await fetch("openapi.json")).json();
schemas = specification.components.schemas;
const operations = Object.entries(specification.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, about]) => operation(path, method, about)));
show(byId("main"), el("h1", {}, `${specification.info.title} ${specification.info.version}`), el("p", {}, specification.info.description), ...operations);
byId("main").setAttribute("aria-busy", "false");
startTheme(() => {});
