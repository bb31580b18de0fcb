// Asking backwards: the noise, steps or radius for a target ε, with progress and a way to stop.

import { ask, Refused } from "./asking.js";
import { parse } from "./form.js";
import { short, steps } from "./figure.js";
import { fiveDigits } from "./telling.js";

const at = (id) => document.getElementById(id);
const NAMES = { noise_multiplier: "noise multiplier", iterations: "steps", radius: "radius" };

function valueOf(name, plan) {
  if (name === "iterations") return steps(plan.iterations);
  if (name === "radius") return plan.domain.kind === "everywhere" ? "∞" : short(plan.domain.radius);
  return typeof plan.noise_multiplier === "number" ? short(Number(plan.noise_multiplier.toPrecision(6))) : "a schedule";
}

export function setUpBackwards({ state, put }) {
  let work = null, found = null;
  const running = (on) => {
    at("find").disabled = on;
    at("cancel").disabled = !on;
    at("progress").hidden = !on;
  };
  at("cancel").addEventListener("click", () => {
    work?.abort();
    running(false);
    at("back-said").textContent = "Cancelled. Nothing was changed.";
    at("find").focus();
  });
  at("use").addEventListener("click", () => {
    put(found.plan);
    at("use").hidden = true;
    at("back-said").textContent = "The plan above is the one that was found.";
  });
  at("back").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (at("find").disabled) return;
    work = new AbortController();
    const { signal } = work;
    const solveFor = at("solve-for").value;
    running(true);
    at("use").hidden = true;
    at("tries").replaceChildren();
    at("back-said").textContent = `Looking for the ${NAMES[solveFor]}…`;
    const question = { ask: "calibrate", state: state(), epsilon: parse(at("target").value), solve_for: solveFor };
    try {
      await ask(question, (line) => {
        if (line.kind === "try") {
          const item = document.createElement("li");
          item.textContent = `${NAMES[solveFor]} ${solveFor === "iterations" ? steps(line.value) : short(line.value)}: ε = ${short(line.epsilon)}`;
          at("tries").append(item);
          item.scrollIntoView({ block: "nearest" });
          at("back-said").textContent = `Looking for the ${NAMES[solveFor]}: ${at("tries").childElementCount} tried…`;
        } else {
          found = line;
          at("back-said").textContent = `Found: ${NAMES[solveFor]} ${valueOf(solveFor, line.plan)}, with ε = ${fiveDigits(line.epsilon)}.`;
          at("use").hidden = false;
        }
      }, signal);
    } catch (trouble) {
      if (trouble.name === "AbortError") return;
      at("back-said").textContent = trouble instanceof Refused ? trouble.message : "The explorer does not answer any more.";
    }
    if (work.signal === signal) running(false);
  });
}
