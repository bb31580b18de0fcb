// What is told in words and tables: theorems with their hypotheses, and what was released.

import { numeric, short } from "./figure.js";
import { labelOf } from "./curves.js";

function make(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  Object.assign(made, attributes);
  made.append(...inside);
  return made;
}

/** Five significant digits, rounded up: what is shown is an upper bound, too. */
export function fiveDigits(value) {
  if (numeric(value) === Infinity) return "∞";
  if (!(value > 0)) return "0";
  const power = 4 - Math.floor(Math.log10(value));
  const scaled = value * 10 ** power;
  const nearest = Math.round(scaled);
  const up = Math.abs(scaled - nearest) < 1e-9 * scaled ? nearest : Math.ceil(scaled);
  return power >= 0 && power < 12 ? (up / 10 ** power).toFixed(power) : String(Number((up / 10 ** power).toPrecision(5)));
}

const REFERENCES = { altschuler_talwar: "Altschuler & Talwar 2022 (the paper)", simple_composition: "composition as the paper does it" };

export function showTheorems(holder, found, state) {
  if (!found.bounds) return;
  const key = JSON.stringify([found.bounds, found.published, found.lower, found.relations]);
  if (holder.dataset.key === key) return;
  holder.dataset.key = key;
  const open = new Set([...holder.querySelectorAll("details[open]")].map((d) => d.dataset.name));
  const body = make("tbody");
  const bounds = Object.entries(found.bounds).sort(([, a], [, b]) => numeric(a) - numeric(b));
  for (const [name, epsilon] of bounds) body.append(theoremRow(name, epsilon, found, open));
  for (const [name, bound] of Object.entries(found.published ?? {})) {
    body.append(make("tr", {}, make("td", {}, REFERENCES[name] ?? labelOf(name)), make("td", { className: "number" }, short(bound.epsilon)),
      make("td", { className: "soft" }, `${bound.reference}. ${bound.status === "proved" ? "Proved for this plan." : "As published; its proof has a gap here."}`)));
  }
  if (found.lower !== undefined && found.lower !== null) {
    body.append(make("tr", {}, make("td", {}, "lower bound"), make("td", { className: "number" }, short(found.lower)),
      make("td", { className: "soft" }, "No proof can claim less: an attack on some data with these constants achieves it.")));
  }
  for (const [name, epsilon] of Object.entries(found.relations ?? {})) {
    body.append(make("tr", {}, make("td", {}, `if neighbours mean ${name}`), make("td", { className: "number" }, fiveDigits(numeric(epsilon))),
      make("td", { className: "soft" }, "The same plan under another relation, as reported.")));
  }
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "what says so"), make("th", { scope: "col", className: "number" }, `ε at δ = ${short(state.delta)}`), make("th", { scope: "col" }, "because")));
  holder.replaceChildren(make("p", {}, found.explanation), make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, head, body)));
}

function theoremRow(name, epsilon, found, open) {
  const wins = name === found.bound;
  const row = make("tr", { className: wins ? "wins" : "" });
  const title = make("td", {}, labelOf(name));
  if (wins) title.append(" ", make("span", { className: "badge" }, "wins: reported"));
  const because = make("td", {}, found.theorems?.[name] ?? "");
  const hypotheses = found.hypotheses?.[name] ?? [];
  if (hypotheses.length) {
    const details = make("details", { open: open.has(name) || (wins && !open.size) }, make("summary", {}, `Its hypotheses, checked (${hypotheses.length})`), make("ul", {}, ...hypotheses.map((h) => make("li", {}, h))));
    details.dataset.name = name;
    because.append(details);
  }
  row.append(title, make("td", { className: "number" }, fiveDigits(numeric(epsilon))), because);
  return row;
}

const card = (value, label) => make("div", {}, make("b", {}, value), make("span", {}, label));

export function showReleased(section, released) {
  if (!released) return;
  section.hidden = false;
  const cards = [
    card(`ε = ${fiveDigits(numeric(released.epsilon))}`, "as certified"),
    card(`ε = ${fiveDigits(numeric(released.composition))}`, "had all steps been added up"),
  ];
  for (const [relation, epsilon] of Object.entries(released.relations)) {
    if (relation !== released.relation) cards.push(card(`ε = ${fiveDigits(numeric(epsilon))}`, `under ${relation}`));
  }
  const saved = numeric(released.composition) / released.epsilon;
  const otherwise = saved > 1.005
    ? `Adding up all ${released.steps.toLocaleString("en")} steps, as other libraries do, would have cost ${Number.isFinite(saved) ? `${short(Number(saved.toPrecision(3)))} times` : "infinitely much more than"} this ε. The table below says what the paper and its peers would have claimed.`
    : "For this plan adding up all steps costs the same.";
  const beside = released.beside.length
    ? `This ε also paid for ${released.beside.join(", ")}. The form and the figures are about the training's plan alone, which costs less. `
    : "The form holds its plan: drag to see what would have been.";
  section.querySelector("div").replaceChildren(
    make("p", {}, "The certificate holds: its numbers were computed again. ", released.fit ? "" : "But the model is not for release."),
    make("p", {}, released.statement),
    make("div", { className: "cards" }, ...cards),
    make("p", {}, otherwise),
    make("p", { className: "soft" }, "Model ", make("code", {}, released.model.slice(0, 16)), `, ${released.steps.toLocaleString("en")} steps run. ${beside}`),
  );
}

export { make };
