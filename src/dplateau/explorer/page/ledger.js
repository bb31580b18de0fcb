// The ledger: budgets per data set as bars, releases on a time line, the tight sum beside the plain one.

import { ask, Refused } from "./asking.js";
import { short } from "./figure.js";
import { make } from "./telling.js";

const SVG = "http://www.w3.org/2000/svg";
const draw = (name, attributes, text) => {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

/** One bar: spent in the tight sum, left, and a mark where the plain sum would stand. */
function bar(budget, sums) {
  const width = 640, most = Math.max(budget.epsilon, sums.plain, sums.tight) * 1.02;
  const x = (v) => 1 + (v / most) * (width - 2);
  const svg = draw("svg", { viewBox: `0 0 ${width} 74`, class: "budget", role: "img" });
  const said = `${budget.dataset}: ε ${short(sums.tight)} of ${short(budget.epsilon)} spent, ${short(sums.left)} left; the plain sum is ${short(sums.plain)}.`;
  svg.append(draw("title", {}, said));
  svg.append(draw("rect", { class: "whole", x: 1, y: 22, width: x(budget.epsilon) - 1, height: 24 }));
  svg.append(draw("rect", { class: "spent", x: 1, y: 22, width: Math.max(0, x(Math.min(sums.tight, most)) - 1), height: 24 }));
  const mark = (value, y, label, name) => {
    const at = Math.min(x(value), width - 2);
    svg.append(draw("line", { class: name, x1: at, x2: at, y1: 16, y2: 52 }));
    svg.append(draw("text", { x: at > width / 2 ? at - 5 : at + 5, y, "text-anchor": at > width / 2 ? "end" : "start" }, label));
  };
  mark(sums.tight, 13, `tight sum ${short(sums.tight)}`, "tight");
  mark(sums.plain, 66, `plain sum ${short(sums.plain)}`, "plain");
  if (Math.abs(x(budget.epsilon) - x(sums.tight)) > 190) svg.append(draw("text", { x: x(budget.epsilon) - 6, y: 39, "text-anchor": "end" }, `budget ε = ${short(budget.epsilon)}`));
  return { svg, said };
}

/** Releases from the first to the last: a filled dot counts, an empty one was refunded. */
function timeLine(budget) {
  const known = budget.releases.filter((r) => r.at).map((r) => ({ ...r, time: Date.parse(r.at) }));
  if (!known.length) return null;
  const width = 640, first = known[0].time, last = known.at(-1).time;
  const largest = Math.max(...known.map((r) => r.epsilon));
  const svg = draw("svg", { viewBox: `0 0 ${width} 96`, class: "time", role: "img" });
  svg.append(draw("title", {}, `Releases of ${budget.dataset} over time; the list below has the same.`));
  svg.append(draw("line", { class: "axis", x1: 20, x2: width - 20, y1: 70, y2: 70 }));
  known.forEach((r, i) => {
    // Releases of the same minute stand side by side.
    const x = 30 + (last > first ? ((r.time - first) / (last - first)) * 0.7 + 0.3 * (i / Math.max(1, known.length - 1)) : i / Math.max(1, known.length)) * (width - 60);
    const top = 70 - 44 * (r.epsilon / largest);
    svg.append(draw("line", { class: "stem", x1: x, x2: x, y1: top, y2: 70 }));
    svg.append(draw("circle", { class: r.live ? "counts" : "refunded", cx: x, cy: top, r: 5 }));
    if (known.length <= 16) svg.append(draw("text", { x, y: top - 9, "text-anchor": "middle" }, `${r.number}`));
  });
  svg.append(draw("text", { x: 20, y: 90 }, known[0].at.slice(0, 10)));
  if (last > first) svg.append(draw("text", { x: width - 20, y: 90, "text-anchor": "end" }, known.at(-1).at.slice(0, 10)));
  return svg;
}

function releases(budget) {
  const head = make("thead", {}, make("tr", {}, ...["release", "when (UTC)", "ε", "δ", "state", "note"].map((t) => make("th", { scope: "col" }, t))));
  const body = make("tbody", {}, ...budget.releases.map((r) => make("tr", {}, make("td", {}, String(r.number)), make("td", {}, (r.at ?? "").slice(0, 16).replace("T", " ")),
    make("td", {}, short(r.epsilon)), make("td", {}, short(r.delta)), make("td", {}, r.status), make("td", {}, r.note))));
  return make("details", { open: budget.releases.length <= 8 }, make("summary", {}, `${budget.releases.length} ${budget.releases.length === 1 ? "release" : "releases"}`), make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, head, body)));
}

export async function showLedger(section) {
  section.hidden = false;
  const holder = section.querySelector("div");
  holder.replaceChildren(make("p", { className: "soft" }, "Reading the ledger…"));
  const parts = {};
  try {
    await ask({ ask: "ledger" }, (line) => {
      if (line.kind === "budget") {
        const sums = make("div", {}, make("p", { className: "soft" }, "Adding up…"));
        const title = make("h3", {}, `${line.dataset}: ε = ${short(line.epsilon)} at δ = ${short(line.delta)}, per ${line.unit}, ${line.relation}`);
        const time = timeLine(line);
        const box = make("div", { className: "dataset" }, title, sums, ...(time ? [time] : []), releases(line));
        if (!Object.keys(parts).length) holder.replaceChildren();
        parts[line.dataset] = { line, sums };
        holder.append(box);
      } else {
        const { svg, said } = bar(parts[line.dataset].line, line);
        parts[line.dataset].sums.replaceChildren(svg, make("p", {}, said));
      }
    });
    if (!Object.keys(parts).length) holder.replaceChildren(make("p", {}, "This ledger has no data set yet."));
  } catch (trouble) {
    holder.append(make("p", { className: "error" }, trouble instanceof Refused ? trouble.message : "The ledger could not be read."));
  }
}
