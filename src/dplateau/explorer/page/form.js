// The plan's form: built from the server's list of fields; edits a plan in its JSON form.

const POSITIONS = 1000;

export function parse(text) {
  const plain = text.trim().replace(/[\s,_’']/g, "");
  if (/^(∞|inf|infinity|none)$/i.test(plain)) return "inf";
  const value = Number(plain);
  return plain === "" || Number.isNaN(value) ? text.trim() : value;
}

export function written(value) {
  if (value === "inf") return "∞";
  if (typeof value !== "number") return value === null || value === undefined ? "" : String(value);
  if (value !== 0 && (Math.abs(value) >= 1e7 || Math.abs(value) < 1e-3)) return value.toExponential().replace("e+", "e");
  return Math.abs(value) >= 1000 ? value.toLocaleString("en", { maximumFractionDigits: 6 }) : String(value);
}

// How each field is read from a plan and put into it, where it is not simply the entry of its name.
const BALLS = ["l2_ball", "l1_ball"];
const ACCESS = {
  delta: { get: (s) => s.delta, put: (s, v) => { s.delta = v; } },
  batches: {
    get: (s) => s.plan.batches.kind,
    put: (s, kind, about) => {
      const sized = about.batches.find((b) => b.kind === kind)?.sized;
      const size = s.plan.batches.size ?? s.lastSize ?? Math.max(1, Math.round(s.plan.records / 100));
      if (s.plan.batches.size !== undefined) s.lastSize = s.plan.batches.size;
      s.plan.batches = sized ? { kind, size } : { kind };
    },
  },
  size: { get: (s) => s.plan.batches.size ?? null, put: (s, v) => { s.plan.batches.size = v; } },
  radius: {
    get: (s) => (s.plan.domain.kind === "everywhere" ? "inf" : s.plan.domain.radius ?? null),
    put: (s, v) => {
      const kind = BALLS.includes(s.plan.domain.kind) ? s.plan.domain.kind : "l2_ball";
      s.plan.domain = v === "inf" ? { kind: "everywhere" } : { kind, radius: v };
    },
  },
};

const ADVANCED = ["lipschitz", "smoothness", "strong_convexity", "hidden_state"];

export class Form {
  constructor(holder, about, changed) {
    this.about = about;
    this.changed = changed;
    this.rows = {};
    const more = document.createElement("details");
    more.className = "box";
    more.id = "more";
    const summary = document.createElement("summary");
    summary.textContent = "Losses, and what is released";
    more.append(summary);
    for (const field of about.fields) {
      (ADVANCED.includes(field.name) ? more : holder).append(this.row(field));
    }
    this.loss = document.createElement("p");
    this.loss.className = "hint";
    more.append(this.loss);
    holder.append(more);
    holder.addEventListener("submit", (event) => event.preventDefault());
  }

  access(name) {
    return ACCESS[name] || { get: (s) => s.plan[name], put: (s, v) => { s.plan[name] = v; } };
  }

  row(field) {
    const row = document.createElement("div");
    row.className = "field";
    row.dataset.field = field.name;
    const named = document.createElement("div");
    named.className = "named";
    const label = document.createElement("label");
    label.htmlFor = `f-${field.name}`;
    label.textContent = field.label;
    const why = document.createElement("button");
    Object.assign(why, { type: "button", className: "why", textContent: "?" });
    why.setAttribute("aria-label", `What ${field.label} means`);
    why.setAttribute("aria-describedby", `m-${field.name}`);
    why.addEventListener("keydown", (event) => { if (event.key === "Escape") why.blur(); });
    const meaning = document.createElement("span");
    Object.assign(meaning, { id: `m-${field.name}`, className: "meaning", textContent: field.meaning });
    meaning.setAttribute("role", "tooltip");
    const error = document.createElement("p");
    Object.assign(error, { id: `e-${field.name}`, className: "error" });
    error.setAttribute("role", "alert");
    const hint = document.createElement("p");
    hint.className = "hint";
    const input = this.input(field);
    input.id = `f-${field.name}`;
    input.setAttribute("aria-describedby", `e-${field.name}`);
    this.rows[field.name] = { field, row, input, error, hint };
    if (input.type === "checkbox") {
      row.classList.add("check");
      named.append(input, label, why, meaning);
      row.append(named);
    } else {
      named.append(label, why, meaning);
      row.append(named, input);
      if (field.high > field.low) row.append(this.slider(field));
    }
    row.append(hint, error);
    return row;
  }

  input(field) {
    if (field.name === "batches" || field.name === "neighboring_relation") {
      const select = document.createElement("select");
      const values = field.name === "batches" ? this.about.batches.map((b) => b.kind) : [...new Set(this.about.batches.flatMap((b) => b.relations))];
      select.append(...values.map((value) => new Option(value, value)));
      select.addEventListener("change", () => this.put(field.name, select.value));
      return select;
    }
    const input = document.createElement("input");
    if (field.name === "hidden_state") {
      input.type = "checkbox";
      input.addEventListener("change", () => this.put(field.name, input.checked));
      return input;
    }
    Object.assign(input, { type: "text", autocomplete: "off", spellcheck: false });
    input.addEventListener("input", () => this.put(field.name, parse(input.value), input));
    input.addEventListener("change", () => this.show(this.state));
    return input;
  }

  slider(field) {
    const slider = document.createElement("input");
    Object.assign(slider, { type: "range", min: 0, max: POSITIONS, step: 1, id: `s-${field.name}` });
    slider.setAttribute("aria-label", `${field.label}, slider`);
    slider.addEventListener("input", () => this.put(field.name, this.fromPosition(field, Number(slider.value)), slider));
    this.rows[field.name].slider = slider;
    return slider;
  }

  high(field) {
    return field.name === "size" && this.state ? Math.max(2, Number(this.state.plan.records) || field.high) : field.high;
  }

  fromPosition(field, position) {
    const [first, last] = [field.below ? 1 : 0, field.above ? POSITIONS - 1 : POSITIONS];
    if (field.below && position < 1) return Number(field.below);
    if (field.above && position > POSITIONS - 1) return field.above;
    const t = (position - first) / (last - first);
    const value = field.low * (this.high(field) / field.low) ** t;
    const rounded = Number(value.toPrecision(value < 10 && field.whole ? 1 : 2));
    return field.whole ? Math.max(1, Math.round(rounded)) : rounded;
  }

  toPosition(field, value) {
    if (value === "inf") return POSITIONS;
    if (typeof value !== "number" || value <= 0) return 0;
    const [first, last] = [field.below ? 1 : 0, field.above ? POSITIONS - 1 : POSITIONS];
    const t = Math.log(value / field.low) / Math.log(this.high(field) / field.low);
    return Math.round(first + Math.min(1, Math.max(0, t)) * (last - first));
  }

  put(name, value, source) {
    this.access(name).put(this.state, value, this.about);
    this.show(this.state, source);
    this.changed(name);
  }

  /** Show a state; the control that is being used is left alone. */
  show(state, source) {
    this.state = state;
    for (const { field, input, slider, row, hint } of Object.values(this.rows)) {
      const value = this.access(field.name).get(state);
      const plain = ["number", "string"].includes(typeof value);
      if (input.type === "checkbox") input.checked = value;
      else if (input !== source) input.value = plain ? written(value) : "";
      if (input.type === "text") input.placeholder = plain ? "" : value === null ? "–" : "a schedule, from the file";
      if (field.name === "size") row.hidden = value === null;
      if (slider && slider !== source) slider.value = this.toPosition(field, value);
      if (slider) slider.setAttribute("aria-valuetext", plain ? (value === "inf" ? "infinite" : written(value)) : "a schedule");
      if (field.name === "radius" && value === null) hint.textContent = `The domain is a ${state.plan.domain.kind}; a number here replaces it by a ball.`;
      else if (field.name === "radius") hint.textContent = value === "inf" ? "No projection." : "";
    }
    const { loss } = state.plan;
    this.loss.textContent = loss ? `The constants follow from the plan's loss (${loss.kind.replaceAll("_", " ")}, rows of norm ${state.plan.data_norm}).` : "";
  }

  /** Say a refusal at the field it is about; an empty message clears all of them. */
  refuse(message, name) {
    let placed = false;
    for (const { field, input, error } of Object.values(this.rows)) {
      const mine = Boolean(message) && field.name === name && !(field.name === "size" && this.rows.size.row.hidden);
      if (error.textContent !== (mine ? message : "")) error.textContent = mine ? message : "";
      input.setAttribute("aria-invalid", String(mine));
      if (mine && ADVANCED.includes(name)) document.getElementById("more").open = true;
      placed ||= mine;
    }
    return placed;
  }

  hint(name, text) {
    const { hint } = this.rows[name];
    if (hint.textContent !== text) hint.textContent = text;
  }
}
