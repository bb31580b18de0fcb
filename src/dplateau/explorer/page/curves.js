// From answers to figures: which lines there are, where they are exact, and who wins where.

import { numeric, short, steps as inSteps, percent, valueAt } from "./figure.js";

export const LABELS = {
  reported: "reported", composition: "composition", paper: "the paper", shift: "shift", patterns: "patterns",
  forgetting: "forgetting", lower: "lower bound", coupling: "coupling",
};
const LOOKS = { reported: 0, composition: 1, paper: 2, shift: 3, patterns: 4, forgetting: 5, lower: 6, coupling: 7 };
const NOT_BOUNDS = ["paper", "lower"];

export const lookOf = (name) => LOOKS[name] ?? 7 + ([...name].reduce((sum, c) => sum + c.charCodeAt(0), 0) % 2);
export const labelOf = (name) => LABELS[name] ?? name.replaceAll("_", " ");

/** What is known of a curve: exact points by x, and estimates for the rest. */
export class Curve {
  constructor() {
    this.exact = new Map();
    this.done = false;
    this.burnIn = undefined;
    this.quick = { x: [], y: {} };
  }

  add(line) {
    this.exact.set(line.x, { ...this.exact.get(line.x), ...line.y });
  }

  names() {
    const all = new Set(Object.keys(this.quick.y));
    for (const y of this.exact.values()) for (const name of Object.keys(y)) all.add(name);
    return [...all].sort((a, b) => lookOf(a) - lookOf(b));
  }

  /** One line: exact where known; elsewhere the estimate, corrected by how far it was off next to it. */
  points(name) {
    const xs = [...new Set([...this.exact.keys(), ...(this.done ? [] : this.quick.x)])].sort((a, b) => numeric(a) - numeric(b));
    const estimates = new Map(this.quick.x.map((x, i) => [x, this.quick.y[name]?.[i]]));
    const offs = xs.map((x) => {
      const [exact, quick] = [this.exact.get(x)?.[name], estimates.get(x)];
      return Number.isFinite(exact) && Number.isFinite(quick) && exact > 0 && quick > 0 ? Math.log(exact / quick) : null;
    });
    return xs.map((x, i) => {
      const known = this.exact.get(x);
      if (known && (name in known || !NOT_BOUNDS.includes(name))) return [x, known[name] ?? null];
      const quick = estimates.get(x);
      if (!Number.isFinite(quick)) return [x, null];
      const left = offs.slice(0, i).findLast((v) => v !== null);
      const right = offs.slice(i + 1).find((v) => v !== null);
      const off = left === undefined ? right ?? 0 : right === undefined ? left : (left + right) / 2;
      return [x, quick * Math.exp(off)];
    });
  }

  exactly(name) {
    return this.done || (this.exact.size > 0 && this.quick.x.every((x) => name in (this.exact.get(x) || {}) || this.exact.has(x)));
  }
}

const good = (y) => y !== null && y !== undefined && Number.isFinite(numeric(y));

/** The least bound at every x, with the crossings in between, cut where the winner changes. */
function winners(lines) {
  const xs = lines[0]?.points.map(([x]) => x) ?? [];
  const parts = [];
  for (const [i, x] of xs.entries()) {
    const here = lines.map((line) => ({ line, y: line.points[i][1] })).filter(({ y }) => good(y));
    if (!here.length) continue;
    const best = here.reduce((a, b) => (b.y < a.y * (1 - 1e-9) ? b : a));
    const last = parts.at(-1);
    if (last && last.name === best.line.name) { last.points.push([x, best.y]); continue; }
    const point = last && crossing(last.line, best.line, i, xs);
    if (point) last.points.push(point);
    else if (last) last.points.push([x, best.y]);
    parts.push({ name: best.line.name, line: best.line, points: [...(point ? [point] : []), [x, best.y]] });
  }
  return parts;
}

function crossing(one, two, i, xs) {
  const [a0, a1, b0, b1] = [one.points[i - 1][1], one.points[i][1], two.points[i - 1][1], two.points[i][1]];
  if (![a0, a1, b0, b1].every((y) => good(y) && y > 0) || numeric(xs[i]) === Infinity || !(xs[i - 1] > 0)) return null;
  const [d0, d1] = [Math.log(b0 / a0), Math.log(b1 / a1)];
  if (d0 === d1) return null;
  const t = d0 / (d0 - d1);
  if (!(t >= 0 && t <= 1)) return null;
  const mix = (u, v) => Math.exp(Math.log(u) * (1 - t) + Math.log(v) * t);
  return [mix(xs[i - 1], xs[i]), mix(a0, a1)];
}

function limits(reported, lines, linear) {
  const ys = reported.map(([, y]) => y).filter((y) => good(y) && y > 0);
  const all = lines.flatMap((l) => l.points.map(([, y]) => y)).filter((y) => good(y) && y > 0);
  if (!all.length) return [0.01, 10];
  const [low, high] = ys.length ? [Math.min(...ys), Math.max(...ys)] : [Math.min(...all), Math.max(...all)];
  if (linear) return [0, Math.min(Math.max(...all), high * 2.5) * 1.05];
  const floor = Math.max(Math.min(...all) * 0.7, low / 50);
  return [floor, Math.max(Math.min(Math.max(...all) * 1.4, high * 12), floor * 10)];
}

function linesOf(curve) {
  return curve.names().map((name) => ({
    name, label: labelOf(name), look: lookOf(name), points: curve.points(name), approximate: !curve.exactly(name),
  }));
}

function base(curve, { log }) {
  const lines = linesOf(curve).filter((line) => line.points.some(([, y]) => good(y)));
  const parts = winners(lines.filter((line) => !NOT_BOUNDS.includes(line.name)));
  const reported = parts.flatMap((part) => part.points);
  const [min, max] = limits(reported, lines, !log);
  const ours = { name: "reported", label: LABELS.reported, look: 0, strong: true, points: merged(reported), approximate: lines.some((l) => l.approximate && l.name !== "lower") };
  return { lines: [...lines, ours], parts, min, max };
}

function merged(points) {
  return points.filter(([x], i) => i === 0 || x !== points[i - 1][0]);
}

/** Where the reported line is as good as flat, read off its points. */
function flatFrom(parts) {
  const points = parts.flatMap((part) => part.points);
  const [last, before] = [points.at(-1), points.at(-2)];
  if (!last || numeric(last[0]) !== Infinity || !before || before[1] < 0.999 * last[1]) return null;
  return points.find(([, y]) => y >= 0.995 * last[1])[0];
}

export function stepsFigure(curve, state, epsilon, { log = true } = {}) {
  const { lines, parts, min, max } = base(curve, { log });
  const xs = lines.flatMap((l) => l.points.map(([x]) => x)).filter((x) => numeric(x) !== Infinity);
  const infinity = lines.some((l) => l.points.some(([x]) => numeric(x) === Infinity));
  const burnIn = curve.burnIn === undefined ? flatFrom(parts) : curve.burnIn;
  const about = curve.burnIn === undefined ? "≈ " : "";
  const flat = burnIn ? `From ${about}${inSteps(burnIn)} steps on ε is flat.` : "No plateau: ε grows with every step.";
  return {
    title: "ε against training steps",
    summary: `${flat} ${parts.map((p) => labelOf(p.name)).join(", then ")} wins.`,
    rest: `${flat} ${lines.some((l) => l.approximate) ? "Pale lines are approximate. " : ""}Point at the figure, or use the arrow keys in it, to read values.`,
    x: { label: "training steps", says: "After {} steps", scale: "log", kind: "steps", min: 1, max: Math.max(10, ...xs), infinity },
    y: { label: `ε at δ = ${short(state.delta)} (less is better)`, scale: log ? "log" : "linear", kind: "number", min, max },
    series: lines,
    areas: parts.map((part) => ({ points: part.points, label: `${labelOf(part.name)} wins` })),
    marks: burnIn ? [{ x: burnIn, label: `burn-in ${about}${burnIn < 1e5 ? Math.round(burnIn).toLocaleString("en") : inSteps(burnIn)}` }] : [],
    here: { x: state.plan.iterations, y: epsilon, label: `ε = ${short(epsilon)}` },
  };
}

export function noiseFigure(curve, state, epsilon) {
  const { lines, parts, min, max } = base(curve, { log: true });
  const xs = lines.flatMap((l) => l.points.map(([x]) => x));
  return {
    title: "ε against the noise multiplier",
    summary: "More noise, smaller ε.",
    rest: `All else as in the plan.${lines.some((l) => l.approximate) ? " Pale lines are approximate." : ""}`,
    aspect: 0.75,
    x: { label: "noise multiplier", says: "With noise {}", scale: "log", kind: "number", min: Math.min(...xs, state.plan.noise_multiplier), max: Math.max(...xs, state.plan.noise_multiplier * 1.01) },
    y: { label: `ε at δ = ${short(state.delta)}`, scale: "log", kind: "number", min, max },
    series: lines,
    areas: parts.map((part) => ({ points: part.points, label: `${labelOf(part.name)}` })),
    here: { x: state.plan.noise_multiplier, y: epsilon, label: `ε = ${short(epsilon)}` },
  };
}

export function attackSentence(points, exact) {
  const one = points.find(([x]) => Math.abs(x - 0.01) < 1e-9);
  if (!one) return "";
  const up = Math.min(1, Math.ceil(one[1] * 1000 - 1e-9) / 1000);
  return `At 1 % false alarms an attacker finds at most ${exact ? "" : "≈ "}${percent(up)} of the records that are there.`;
}

export function attackFigure(points, exact) {
  const guessing = points.map(([x]) => [x, x]);
  const sentence = attackSentence(points, exact);
  return {
    title: "What the best attack on one record achieves",
    summary: sentence,
    rest: sentence,
    aspect: 0.75,
    x: { label: "false alarms", says: "At {} false alarms", scale: "log", kind: "percent", min: 1e-4, max: 1 },
    y: { label: "records found", scale: "log", kind: "percent", min: 1e-4, max: 1 },
    series: [
      { name: "guessing", label: "guessing", look: 1, points: guessing },
      { name: "attack", label: "best attack", look: 0, strong: true, points, approximate: !exact },
    ],
    areas: [{ points, label: "what attacks can reach" }],
    marks: [{ x: 0.01, label: "1 %" }],
  };
}

/** ε at a number of steps, read off a finished curve. */
export function readOff(curve, x) {
  const { lines } = base(curve, { log: true });
  return valueAt(lines.at(-1), x, { x: { scale: "log" }, y: { scale: "log" } })?.y ?? null;
}
