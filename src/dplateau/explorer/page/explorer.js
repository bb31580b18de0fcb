// The explorer's page: state, the answers to it, and what is shown of them.

import { Figure, numeric, short } from "./figure.js";
import { ask, Latest, Refused, Remembered } from "./asking.js";
import { Form, parse } from "./form.js";
import { attackFigure, attackSentence, Curve, noiseFigure, readOff, stepsFigure } from "./curves.js";
import { showTheorems, showReleased, fiveDigits } from "./telling.js";
import { setUpTaking } from "./taking.js";
import { setUpBackwards } from "./backwards.js";
import { showLedger } from "./ledger.js";

const PAUSE = 220; // milliseconds without a change before exact answers are asked for
const at = (id) => document.getElementById(id);
const figures = { steps: new Figure(at("figure-steps")), noise: new Figure(at("figure-noise")), attack: new Figure(at("figure-attack")) };
const known = { exact: new Remembered(60), steps: new Remembered(30), noise: new Remembered(30), attack: new Remembered(60) };

let about, form, state, quick = null, work = null, timer = null, valid = true;
let off = 1; // how far the last estimate was from its exact value
let texts = {};
let stopped = ""; // why the last exact answer is not complete

// -- state, and the link that restores it ----------------------------------------------------------

const encode = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
const decode = (text) => new TextDecoder().decode(Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)));

function fromLink() {
  try {
    const stored = JSON.parse(decode(location.hash.slice(1)));
    return stored.plan && stored.delta ? { plan: stored.plan, delta: stored.delta } : null;
  } catch {
    return null;
  }
}

const keep = () => history.replaceState(null, "", `#${encode(JSON.stringify(plainState()))}`);
const plainState = () => ({ plan: state.plan, delta: state.delta });
const copyOf = (value) => JSON.parse(JSON.stringify(value));

function without(...names) {
  const plan = copyOf(state.plan);
  for (const name of names) delete plan[name];
  return JSON.stringify([plan, state.delta]);
}

export function put(plan, delta) {
  state = { plan: copyOf(plan), delta: delta ?? state.delta };
  off = 1;
  form.show(state);
  changed();
}

function changed() {
  keep();
  stopped = "";
  work?.abort();
  clearTimeout(timer);
  at("headline").dataset.busy = "true";
  quickly.put({ state: copyOf(plainState()), since: performance.now() });
  timer = setTimeout(exactly, PAUSE);
}

// -- answers: estimates at once, exact ones after a pause --------------------------------------------

const quickly = new Latest(async ({ state: asked, since }) => {
  try {
    await ask({ ask: "quick", state: asked }, (line) => { quick = line; });
    valid = true;
    refuse("");
    texts = quick.texts;
    taking.show(texts);
    show();
  } catch (trouble) {
    if (!(trouble instanceof Refused)) { lost(trouble); return; }
    if (trouble.line.kind === "stopped") { say(trouble.message); return; }
    valid = false;
    refuse(trouble.message, trouble.line.field);
  }
  document.body.dataset.answered = String(Math.round(performance.now() - since));
  (window.answers ??= []).push(performance.now() - since);
});

async function exactly() {
  if (quickly.busy) { timer = setTimeout(exactly, 30); return; }
  if (!valid) return;
  work = new AbortController();
  const { signal } = work;
  const now = plainState();
  const found = known.exact.get(without(), () => ({}));
  const curve = curves();
  const jobs = [];
  if (!found.done) {
    jobs.push(ask({ ask: "exact", state: now }, (line) => {
      Object.assign(found, line);
      if (line.kind === "epsilon" && quick && Number.isFinite(quick.epsilon)) off = line.epsilon / quick.epsilon;
      if (line.kind === "theorems") { // the curves go through the plan's own point
        curve.steps.add({ x: now.plan.iterations, y: line.bounds });
        if (typeof now.plan.noise_multiplier === "number") curve.noise.add({ x: now.plan.noise_multiplier, y: line.bounds });
      }
      show();
    }, signal).then(() => { found.done = true; }));
  }
  if (!curve.steps.done) jobs.push(along("steps", curve.steps, now, signal));
  // Two workers answer at a time: these wait for the first two.
  if (!curve.noise.done) jobs.push(along("noise", curve.noise, now, signal));
  if (!curve.attack.points) {
    jobs.push(ask({ ask: "attack", state: now }, (line) => {
      curve.attack.points = line.x.map((x, i) => [x, line.y[i]]);
      show();
    }, signal));
  }
  show();
  const ended = await Promise.allSettled(jobs);
  if (signal.aborted) return;
  at("headline").dataset.busy = "false";
  const failed = ended.find((job) => job.status === "rejected");
  if (failed && failed.reason instanceof Refused) stopped = failed.reason.message;
  else if (failed) { lost(failed.reason); return; }
  show();
}

function along(what, curve, now, signal) {
  const have = [...curve.exact].filter(([, y]) => (what === "steps" ? "lower" : "paper") in y).map(([x]) => x);
  return ask({ ask: what, state: now, have }, (line) => {
    if (line.kind === "point") curve.add(line);
    if (line.kind === "burn_in") curve.burnIn = line.burn_in;
    show();
  }, signal).then(() => { curve.done = true; });
}

function curves() {
  return {
    steps: known.steps.get(without("iterations"), () => new Curve()),
    noise: known.noise.get(without("noise_multiplier"), () => new Curve()),
    attack: known.attack.get(without(), () => ({})),
  };
}

// -- what is shown -------------------------------------------------------------------------------

let drawing = false;
function show() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}

function draw() {
  if (!quick) return;
  const found = known.exact.get(without()) || {};
  const curve = curves();
  curve.steps.quick = { ...quick.steps, burnIn: quick.burn_in };
  curve.noise.quick = quick.noise;
  const exact = found.epsilon !== undefined;
  const epsilon = exact ? numeric(found.epsilon) : estimate(curve.steps);
  headline(epsilon, exact, found);
  figures.steps.update(stepsFigure(curve.steps, state, epsilon, { log: document.querySelector('[name="axes"]:checked').value === "log" }));
  at("noise-title").closest("section").hidden = typeof state.plan.noise_multiplier !== "number";
  if (quick.noise.x.length) figures.noise.update(noiseFigure(curve.noise, state, epsilon));
  const attack = curve.attack.points ?? quick.attack.x.map((x, i) => [x, quick.attack.y[i]]);
  figures.attack.update(attackFigure(attack, Boolean(curve.attack.points)));
  showTheorems(at("theorems"), found, state);
  hints();
}

function estimate(curve) {
  if (curve.done) {
    const read = readOff(curve, state.plan.iterations);
    if (read !== null) return read;
  }
  return numeric(quick.epsilon) * (Number.isFinite(off) && off > 0 ? off : 1);
}

function headline(epsilon, exact, found) {
  const value = at("epsilon");
  value.dataset.status = exact ? "exact" : "approximate";
  if (exact) value.dataset.exact = String(found.epsilon); else delete value.dataset.exact;
  value.textContent = exact ? `ε = ${fiveDigits(epsilon)}` : `ε ≈ ${short(Number(epsilon.toPrecision(3)))}`;
  at("at-delta").textContent = `at δ = ${short(state.delta)}`;
  const complete = found.done && at("headline").dataset.busy !== "true";
  say(!valid ? "not a plan: see the field that is marked" : stopped ? stopped : exact ? (complete ? "exact" : "exact; the figures are being refined…") : "approximate; working out the exact value…");
  const points = known.attack.get(without())?.points;
  const told = epsilon > 10 ? "A weak promise: ε is above 10. " : "";
  at("moral").textContent = told + attackSentence(points ?? quick.attack.x.map((x, i) => [x, quick.attack.y[i]]), Boolean(points));
}

function hints() {
  const { plan } = quick;
  form.hint("step_size", numeric(plan.step_limit) === Infinity ? "" : `Steps contract up to ${short(plan.step_limit)}.`);
  form.hint("batches", about.batches.find((b) => b.kind === state.plan.batches.kind)?.about.replaceAll("`", "") ?? "");
  form.hint("size", plan.chance < 1 ? `A record takes part in a step with chance ${short(plan.chance)}.` : "");
}

function say(text) {
  if (at("status").textContent !== text) at("status").textContent = text;
}

function refuse(message, field) {
  const placed = form.refuse(message, field);
  at("refused").hidden = !message || placed;
  at("refused").textContent = message && !placed ? message : "";
  if (!message) return;
  say("not a plan: see the field that is marked");
  at("epsilon").textContent = "ε = ?";
  at("epsilon").dataset.status = "wait";
  delete at("epsilon").dataset.exact;
  at("moral").textContent = message;
}

function lost(trouble) {
  if (trouble.name === "AbortError") return;
  say("The explorer does not answer any more. Start it again: dplateau explore.");
}

// -- setting up ----------------------------------------------------------------------------------

function setUpPresets() {
  const choose = at("preset");
  choose.append(new Option(about.released ? "What was released" : "The plan that was opened", ""));
  choose.append(...about.presets.map((p) => new Option(p.title, p.name)));
  const first = about.presets.find((p) => JSON.stringify(p.plan) === JSON.stringify(about.plan));
  choose.value = first && !about.released ? first.name : "";
  const note = () => { at("preset-note").textContent = about.presets.find((p) => p.name === choose.value)?.note ?? ""; };
  note();
  choose.addEventListener("change", () => {
    const preset = about.presets.find((p) => p.name === choose.value) ?? about;
    note();
    put(preset.plan, preset.delta);
  });
  at("table-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    at("table-said").textContent = "Planning…";
    try {
      const question = { ask: "table", records: parse(at("table-records").value), features: parse(at("table-features").value), epsilon: parse(at("table-epsilon").value) };
      await ask(question, (line) => {
        choose.value = "";
        at("preset-note").textContent = "The planner's plan for your table.";
        at("table-said").textContent = "Done: this is the planner's plan.";
        at("target").value = at("table-epsilon").value;
        put(line.plan, line.delta);
      });
    } catch (trouble) {
      at("table-said").textContent = trouble instanceof Refused ? trouble.message : "The explorer does not answer.";
    }
  });
}

const taking = setUpTaking({ figures, link: () => { keep(); return location.href; }, plan: () => texts.json });

about = await (await fetch("about")).json();
state = fromLink() ?? { plan: copyOf(about.plan), delta: about.delta };
form = new Form(at("fields"), about, changed);
setUpPresets();
setUpBackwards({ state: plainState, put });
showReleased(at("released"), about.released);
if (about.ledger) showLedger(at("ledger"));
at("footer").textContent = `dplateau ${about.version} · served from this machine, for this machine.`;
for (const choice of document.querySelectorAll('[name="axes"]')) choice.addEventListener("change", show);
window.addEventListener("hashchange", () => { const stored = fromLink(); if (stored) put(stored.plan, stored.delta); });
form.show(state);
changed();
