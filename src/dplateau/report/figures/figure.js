// Labelled line charts in SVG: the explorer's figures and the report's, drawn from one description.
//
// A description ("spec") is plain JSON:
//   title, summary          what the figure shows, in words
//   x, y                    {label, scale: "log"|"linear", min, max, kind: "steps"|"number"|"percent", infinity}
//   series                  [{name, label, look, points: [[x, y], ...], approximate, strong}]; x may be "inf"
//   areas                   [{points, label}]: what lies under them is shaded and named
//   marks                   [{x, label}]: vertical lines
//   here                    {x, y, label}: the point the reader stands at
// Nothing is told by colour alone: every line has its own dashes and marker, and its name at its end.

const SVG = "http://www.w3.org/2000/svg";
const DASHES = ["", "2 3", "9 4", "9 3 2 3", "5 3", "", "1.5 4", "12 3 2 3 2 3", "4 2"];
const SHAPES = ["none", "square", "triangle", "diamond", "down", "circle", "none", "cross", "plus"];
const INFINITY_GAP = 44;

function element(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

export const numeric = (value) => (value === "inf" ? Infinity : value);

export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (numeric(value) === Infinity) return "∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return Number(value.toPrecision(3)).toExponential().replace("e+", "e").replace("-", "−");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

export function steps(value) {
  if (numeric(value) === Infinity) return "∞";
  for (const [unit, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= unit) return `${Number((value / unit).toPrecision(3))}${letter}`;
  }
  return String(Number(value.toPrecision(3)));
}

export const percent = (value) => `${Number((100 * value).toPrecision(3))} %`;
const FORMATS = { steps, number: short, percent };

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  const all = [];
  const stride = Math.max(1, Math.ceil(decades / 8));
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k += 1) {
    const parts = decades < 2.2 ? [1, 2, 5] : [1];
    if (((k % stride) + stride) % stride) continue;
    for (const part of parts) all.push(part * 10 ** k);
  }
  return all.filter((t) => t >= low * 0.999 && t <= high * 1.001);
}

function linearTicks(low, high, count = 6) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const all = [];
  for (let t = Math.ceil(low / step) * step; t <= high * 1.0001; t += step) all.push(Number(t.toPrecision(10)));
  return all;
}

function scale(axis, from, to) {
  const log = axis.scale === "log";
  const place = log ? Math.log : (v) => v;
  const [low, high] = [place(axis.min), place(axis.max)];
  const at = (value) => from + ((place(value) - low) / (high - low)) * (to - from);
  const back = (pixel) => {
    const inside = low + ((pixel - from) / (to - from)) * (high - low);
    return log ? Math.exp(inside) : inside;
  };
  return { at, back, ticks: log ? logTicks(axis.min, axis.max) : linearTicks(axis.min, axis.max) };
}

function marker(shape, x, y, size = 4) {
  const s = size;
  const paths = {
    square: `M${x - s} ${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    triangle: `M${x} ${y - s * 1.2}L${x + s * 1.1} ${y + s}H${x - s * 1.1}z`,
    down: `M${x} ${y + s * 1.2}L${x + s * 1.1} ${y - s}H${x - s * 1.1}z`,
    diamond: `M${x} ${y - s * 1.3}L${x + s * 1.1} ${y}L${x} ${y + s * 1.3}L${x - s * 1.1} ${y}z`,
    circle: `M${x - s} ${y}a${s} ${s} 0 1 0 ${2 * s} 0a${s} ${s} 0 1 0 ${-2 * s} 0z`,
    cross: `M${x - s} ${y - s}L${x + s} ${y + s}M${x - s} ${y + s}L${x + s} ${y - s}`,
    plus: `M${x - s} ${y}H${x + s}M${x} ${y - s}V${y + s}`,
  };
  return paths[shape];
}

/** The value of a line at x, between its points; logarithms are interpolated where axes are logarithmic. */
export function valueAt(series, x, spec) {
  const points = series.points.filter(([, y]) => y !== null && Number.isFinite(numeric(y)));
  if (!points.length) return null;
  if (numeric(x) === Infinity) {
    const end = points.find((p) => numeric(p[0]) === Infinity);
    return end ? { y: end[1], between: false } : null;
  }
  const finite = points.filter((p) => numeric(p[0]) !== Infinity);
  const exact = finite.find((p) => p[0] === x);
  if (exact) return { y: exact[1], between: false };
  const right = finite.findIndex((p) => p[0] > x);
  if (right <= 0) return null;
  const [[x0, y0], [x1, y1]] = [finite[right - 1], finite[right]];
  const lx = spec.x.scale === "log" ? Math.log : (v) => v;
  const t = (lx(x) - lx(x0)) / (lx(x1) - lx(x0));
  const logy = spec.y.scale === "log" && y0 > 0 && y1 > 0;
  return { y: logy ? Math.exp(Math.log(y0) * (1 - t) + Math.log(y1) * t) : y0 * (1 - t) + y1 * t, between: true };
}

export class Figure {
  constructor(holder, spec) {
    this.holder = holder;
    this.hidden = new Set();
    this.cursor = null;
    holder.classList.add("figure");
    this.stage = document.createElement("div");
    this.stage.className = "stage";
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "img");
    this.readout = document.createElement("output");
    this.readout.className = "readout";
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    holder.replaceChildren(this.stage, this.legend, this.readout);
    this.stage.addEventListener("pointermove", (event) => this.point(event));
    this.stage.addEventListener("pointerdown", (event) => this.point(event));
    this.stage.addEventListener("pointerleave", () => this.moveTo(null));
    this.stage.addEventListener("keydown", (event) => this.key(event));
    this.stage.addEventListener("blur", () => this.moveTo(null));
    new ResizeObserver(() => this.draw()).observe(this.stage);
    if (spec) this.update(spec);
  }

  update(spec) {
    this.spec = spec;
    this.draw();
  }

  draw() {
    const { spec } = this;
    const width = this.stage.clientWidth;
    if (!spec || !width) return;
    const shown = spec.series.filter((s) => !this.hidden.has(s.name) && s.points.some(([, y]) => Number.isFinite(numeric(y)) && y !== null));
    const wide = width >= 620;
    const height = Math.round(Math.max(250, Math.min(width * (spec.aspect || 0.52), 430)));
    const box = { left: 58, right: width - (wide ? 158 : 24), top: 16, bottom: height - 46 };
    this.box = box;
    const end = spec.x.infinity ? box.right - INFINITY_GAP : box.right;
    this.sx = scale(spec.x, box.left, end);
    this.sy = scale(spec.y, box.bottom, box.top);
    this.x = (v) => (numeric(v) === Infinity ? box.right - 12 : this.sx.at(v));
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "drawing", "aria-hidden": "true" });
    svg.append(element("title", {}, spec.title));
    const clip = `clip-${(Figure.count = (Figure.count || 0) + 1)}`;
    const clipPath = element("clipPath", { id: clip });
    clipPath.append(element("rect", { x: box.left, y: box.top - 4, width: box.right - box.left, height: box.bottom - box.top + 4 }));
    svg.append(clipPath);
    this.axes(svg, end, width, height);
    const inside = element("g", { "clip-path": `url(#${clip})` });
    svg.append(inside);
    for (const [index, area] of (spec.areas || []).entries()) this.area(inside, area, index);
    for (const mark of spec.marks || []) this.mark(svg, mark);
    for (const line of shown) this.line(inside, line);
    if (spec.here && spec.here.y !== null && Number.isFinite(spec.here.y)) this.here(svg, inside, spec.here);
    if (wide) this.names(svg, shown);
    this.pointer = element("g", { class: "pointer", visibility: "hidden" });
    svg.append(this.pointer);
    this.stage.replaceChildren(svg);
    this.stage.setAttribute("aria-label", `${spec.title}. ${spec.summary || ""} Arrow keys read values out.`);
    this.drawLegend();
    if (this.cursor !== null) this.moveTo(this.cursor);
    else this.rest();
  }

  axes(svg, end, width, height) {
    const { spec, box } = this;
    const grid = element("g", { class: "grid" });
    const ticks = element("g", { class: "ticks" });
    const room = (end - box.left) / Math.max(1, this.sx.ticks.length);
    const every = Math.max(1, Math.ceil(46 / room));
    this.sx.ticks.forEach((t, i) => {
      const x = this.sx.at(t);
      grid.append(element("line", { x1: x, x2: x, y1: box.top, y2: box.bottom }));
      if (i % every === 0) ticks.append(element("text", { x, y: box.bottom + 17, "text-anchor": "middle" }, FORMATS[spec.x.kind || "number"](t)));
    });
    for (const t of this.sy.ticks) {
      const y = this.sy.at(t);
      grid.append(element("line", { x1: box.left, x2: box.right, y1: y, y2: y }));
      ticks.append(element("text", { x: box.left - 7, y: y + 4, "text-anchor": "end" }, FORMATS[spec.y.kind || "number"](t)));
    }
    if (spec.x.infinity) {
      const x = box.right - 12;
      grid.append(element("line", { x1: x, x2: x, y1: box.top, y2: box.bottom }));
      ticks.append(element("text", { x, y: box.bottom + 18, "text-anchor": "middle", class: "infinity" }, "∞"));
    }
    const frame = element("path", { class: "frame", d: `M${box.left} ${box.top}V${box.bottom}H${box.right}` });
    const xlabel = element("text", { class: "axis", x: (box.left + end) / 2, y: height - 8, "text-anchor": "middle" }, spec.x.label);
    const middle = (box.top + box.bottom) / 2;
    const ylabel = element("text", { class: "axis", x: 14, y: middle, "text-anchor": "middle", transform: `rotate(-90 14 ${middle})` }, spec.y.label);
    svg.append(grid, frame, ticks, xlabel, ylabel);
  }

  path(points) {
    let d = "", pen = false;
    for (const [x, y] of points) {
      if (y === null || !Number.isFinite(numeric(y)) || (this.spec.y.scale === "log" && y <= 0)) { pen = false; continue; }
      const place = Math.max(-4000, Math.min(8000, this.sy.at(y)));
      d += `${pen ? "L" : "M"}${this.x(x).toFixed(1)} ${place.toFixed(1)}`;
      pen = true;
    }
    return d;
  }

  line(group, series) {
    const look = series.look % DASHES.length;
    const classes = `line look-${look}${series.strong ? " strong" : ""}${series.approximate ? " approximate" : ""}`;
    group.append(element("path", { class: classes, d: this.path(series.points), "stroke-dasharray": DASHES[look] || "none" }));
    const seen = series.points.filter(([, y]) => y !== null && Number.isFinite(numeric(y)) && (this.spec.y.scale !== "log" || y > 0));
    if (SHAPES[look] === "none" && seen.length > 1) return;
    const stride = Math.max(1, Math.ceil(seen.length / 9));
    seen.forEach(([x, y], i) => {
      if (i % stride && i !== seen.length - 1) return;
      const d = marker(SHAPES[look] === "none" ? "circle" : SHAPES[look], this.x(x), this.sy.at(y));
      group.append(element("path", { class: `marker look-${look}${series.approximate ? " approximate" : ""}`, d }));
    });
  }

  area(group, area, index) {
    const points = area.points.filter(([, y]) => y !== null && Number.isFinite(numeric(y)));
    if (points.length < 2) return;
    const floor = this.box.bottom;
    const d = `${this.path(points)}L${this.x(points.at(-1)[0])} ${floor}L${this.x(points[0][0])} ${floor}z`;
    group.append(element("path", { class: `area area-${index % 2}`, d }));
    const [left, right] = [this.x(points[0][0]), this.x(points.at(-1)[0])];
    if (area.label && right - left > 7 * area.label.length) {
      group.append(element("text", { class: "area-name", x: (left + right) / 2, y: floor - 8, "text-anchor": "middle" }, area.label));
    }
  }

  mark(svg, mark) {
    const x = this.x(mark.x);
    if (!(x > this.box.left && x < this.box.right)) return;
    svg.append(element("line", { class: "mark", x1: x, x2: x, y1: this.box.top, y2: this.box.bottom }));
    const left = x - this.box.left > (this.box.right - this.box.left) * 0.55;
    svg.append(element("text", { class: "mark-name", x: x + (left ? -5 : 5), y: this.box.top + 11, "text-anchor": left ? "end" : "start" }, mark.label));
  }

  here(svg, group, here) {
    const [x, y] = [this.x(here.x), this.sy.at(here.y)];
    group.append(element("line", { class: "here-drop", x1: x, x2: x, y1: y, y2: this.box.bottom }));
    group.append(element("circle", { class: "here", cx: x, cy: y, r: 7 }));
    group.append(element("circle", { class: "here-core", cx: x, cy: y, r: 2.5 }));
    if (!here.label) return;
    const left = x > (this.box.left + this.box.right) / 2;
    svg.append(element("text", { class: "here-name", x: x + (left ? -12 : 12), y: Math.max(y - 12, this.box.top + 26), "text-anchor": left ? "end" : "start" }, here.label));
  }

  names(svg, shown) {
    const gap = 16;
    const ends = shown.map((s) => {
      const seen = s.points.filter(([x, y]) => y !== null && Number.isFinite(numeric(y)) && (this.spec.y.scale !== "log" || y > 0));
      const last = seen.at(-1);
      return last && { s, value: last[1], y: Math.max(this.box.top, Math.min(this.box.bottom, this.sy.at(last[1]))), out: this.sy.at(last[1]) < this.box.top - 2 };
    }).filter(Boolean).sort((a, b) => a.y - b.y);
    for (let i = 1; i < ends.length; i += 1) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + gap);
    for (let i = ends.length - 1; i >= 0; i -= 1) {
      const ceiling = i + 1 < ends.length ? ends[i + 1].y - gap : this.box.bottom + 6;
      ends[i].y = Math.min(ends[i].y, ceiling);
    }
    for (const { s, value, y, out } of ends) {
      const text = element("text", { class: `name look-${s.look % DASHES.length}${s.strong ? " strong" : ""}`, x: this.box.right + 8, y: y + 4 });
      text.append(element("tspan", {}, s.label.length > 17 ? `${s.label.slice(0, 16)}…` : s.label));
      text.append(element("tspan", { class: "value", dx: 5 }, `${out ? "↑ " : ""}${FORMATS[this.spec.y.kind || "number"](Number(value.toPrecision(3)))}`));
      svg.append(text);
    }
  }

  drawLegend() {
    const focused = this.legend.contains(document.activeElement) && document.activeElement.dataset.name;
    this.legend.replaceChildren(...this.spec.series.filter((s) => s.points.length).map((s) => {
      const look = s.look % DASHES.length;
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.name = s.name;
      button.setAttribute("aria-pressed", String(!this.hidden.has(s.name)));
      button.title = `${this.hidden.has(s.name) ? "Show" : "Hide"} ${s.label}`;
      const swatch = element("svg", { width: 34, height: 12, "aria-hidden": "true" });
      swatch.append(element("path", { class: `line look-${look}${s.strong ? " strong" : ""}`, d: "M1 6H33", "stroke-dasharray": DASHES[look] || "none" }));
      if (SHAPES[look] !== "none") swatch.append(element("path", { class: `marker look-${look}`, d: marker(SHAPES[look], 17, 6, 3.6) }));
      button.append(swatch, s.label);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(s.name)) this.hidden.add(s.name);
        this.draw();
      });
      item.append(button);
      return item;
    }));
    if (focused) this.legend.querySelector(`[data-name="${focused}"]`)?.focus();
  }

  // -- reading values out ----------------------------------------------------------------------

  stops() {
    const all = new Set();
    for (const s of this.spec.series) for (const [x] of s.points) all.add(x);
    return [...all].sort((a, b) => numeric(a) - numeric(b)).filter((x) => numeric(x) === Infinity ? this.spec.x.infinity : x >= this.spec.x.min * 0.999 && x <= this.spec.x.max * 1.001);
  }

  point(event) {
    if (!this.box) return;
    const pixel = event.clientX - this.stage.getBoundingClientRect().left;
    const { box, spec } = this;
    if (pixel < box.left - 8 || pixel > box.right + 8) { this.moveTo(null); return; }
    if (spec.x.infinity && pixel > box.right - INFINITY_GAP / 2 - 6) { this.moveTo("inf"); return; }
    const raw = Math.min(spec.x.max, Math.max(spec.x.min, this.sx.back(pixel)));
    const near = this.stops().find((x) => Math.abs(this.x(x) - pixel) < 4);
    this.moveTo(near ?? (spec.x.kind === "steps" ? Math.max(1, Math.round(raw)) : raw));
  }

  key(event) {
    const stops = this.stops();
    if (!stops.length) return;
    const now = this.cursor === null ? -1 : stops.findIndex((x) => numeric(x) >= numeric(this.cursor));
    const next = { ArrowRight: Math.min(now + 1, stops.length - 1), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: stops.length - 1 }[event.key];
    if (event.key === "Escape") this.moveTo(null);
    else if (next !== undefined) { this.moveTo(stops[next]); event.preventDefault(); }
  }

  rest() {
    this.readout.textContent = this.spec.rest || "";
    this.readout.setAttribute("aria-live", "off");
  }

  moveTo(x) {
    this.cursor = x;
    if (!this.pointer) return;
    this.pointer.replaceChildren();
    if (x === null) {
      this.pointer.setAttribute("visibility", "hidden");
      this.rest();
      return;
    }
    const { box, spec } = this;
    const at = this.x(x);
    this.pointer.setAttribute("visibility", "visible");
    this.pointer.append(element("line", { x1: at, x2: at, y1: box.top, y2: box.bottom }));
    const said = [];
    const format = FORMATS[spec.y.kind || "number"];
    for (const s of spec.series) {
      if (this.hidden.has(s.name)) continue;
      const found = valueAt(s, x, spec);
      if (!found) continue;
      const y = this.sy.at(found.y);
      if (y >= box.top - 1 && y <= box.bottom + 1) this.pointer.append(element("circle", { class: `dot look-${s.look % DASHES.length}`, cx: at, cy: y, r: 4 }));
      said.push(`${s.label} ${found.between || s.approximate ? "≈ " : ""}${format(Number(found.y.toPrecision(4)))}`);
    }
    const where = FORMATS[spec.x.kind || "number"](x);
    this.readout.setAttribute("aria-live", document.activeElement === this.stage ? "polite" : "off");
    this.readout.textContent = `${spec.x.says ? spec.x.says.replace("{}", where) : `${spec.x.label} ${where}`}: ${said.join(" · ") || "nothing is known here"}`;
  }

  // -- taking the picture along ----------------------------------------------------------------

  /** The drawing as SVG text with its colours written out, on the page's paper. */
  svg() {
    const drawn = this.stage.querySelector("svg");
    const copy = drawn.cloneNode(true);
    const names = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-linejoin", "opacity", "font-size", "font-weight", "font-family"];
    const [from, to] = [drawn.querySelectorAll("*"), copy.querySelectorAll("*")];
    from.forEach((node, i) => {
      const style = getComputedStyle(node);
      for (const name of names) if (style.getPropertyValue(name)) to[i].setAttribute(name, style.getPropertyValue(name));
      to[i].removeAttribute("class");
    });
    copy.querySelectorAll('[visibility="hidden"]').forEach((node) => node.remove());
    copy.setAttribute("xmlns", SVG);
    const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() || "#fff";
    copy.prepend(element("rect", { width: "100%", height: "100%", fill: paper }));
    return new XMLSerializer().serializeToString(copy);
  }

  /** The drawing as a PNG blob, at twice its size. */
  async png() {
    const { width, height } = this.stage.querySelector("svg").viewBox.baseVal;
    const image = new Image(width * 2, height * 2);
    const address = URL.createObjectURL(new Blob([this.svg()], { type: "image/svg+xml" }));
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * 2, height * 2];
    canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
    URL.revokeObjectURL(address);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }
}
