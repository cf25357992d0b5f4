const at = (id) => document.getElementById(id);
const { names, start, low, high, messages } = description.page;
const CURVE = 300; // places at which the curve is drawn
const MARGIN = { left: 58, right: 12, top: 10, gap: 26, bottom: 26 };

const state = {
  kernel: null, x: new Float32Array(), y: new Float32Array(), parameters: Float32Array.from(start),
  fitting: false, drawn: null,
};

// numbers -----------------------------------------------------------------------------------------

/** A number as a person reads it. */
const told = (v) => (v === 0 || !Number.isFinite(v) ? String(v) : String(Number(v.toPrecision(5))));

/** The rows of two numbers in a text; other lines are passed over. */
function rowsIn(text) {
  const decimal = text.includes(";") ? (cell) => cell.replace(",", ".") : (cell) => cell;
  const cells = text.split(/\r?\n/).map((line) => {
    const parts = line.trim().split(text.includes(";") ? /\s*;\s*/ : /[\s,]+/);
    return parts.slice(0, 2).map((cell) => (cell === "" ? NaN : Number(decimal(cell))));
  });
  return cells.filter((row) => row.length === 2 && row.every(Number.isFinite));
}

/** An example of the model: what it gives near its start, with noise. */
async function example() {
  const x = Float32Array.from({ length: 60 }, (_, k) => k / 6);
  const y = await values(x, Float32Array.from(start, (v) => 1.2 * v));
  const size = 0.04 * (Math.max(...y) - Math.min(...y) || 1);
  let seed = 14;
  const random = () => { seed = (1664525 * seed + 1013904223) % 2 ** 32; return seed / 2 ** 32; };
  return { x, y: y.map((v) => v + size * (random() + random() + random() - 1.5)) };
}

/** What the model gives at these places. */
async function values(x, parameters) {
  const width = 1 + parameters.length;
  const points = new Float32Array(x.length * width);
  x.forEach((place, k) => points.set([place, ...parameters], k * width));
  return (await state.kernel.run(points)).values;
}

// the plot ----------------------------------------------------------------------------------------

/** Round numbers within a range. */
function ticks(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((s) => s * power >= rough);
  const found = [];
  for (let k = Math.ceil(from / step); k * step <= to; k++) {
    found.push(Number((k * step).toPrecision(12)));
  }
  return found;
}

/** The range of numbers, with a little room, for a picture. */
function rangeOf(numbers, about = null) {
  let [from, to] = [Infinity, -Infinity];
  for (const v of numbers.filter(Number.isFinite)) [from, to] = [Math.min(from, v), Math.max(to, v)];
  if (about !== null) [from, to] = [Math.min(from, about), Math.max(to, about)];
  if (!(from <= to)) return [0, 1];
  const room = 0.06 * (to - from) || 0.5 * Math.abs(to) || 1;
  return [from - room, to + room];
}

/** A panel of the plot: axes, and what puts numbers there. */
function panel(ink, box, xs, ys, title, colours) {
  const across = (v) => box.left + (v - xs[0]) / (xs[1] - xs[0]) * box.width;
  const down = (v) => box.top + box.height - (v - ys[0]) / (ys[1] - ys[0]) * box.height;
  ink.strokeStyle = colours.line;
  ink.fillStyle = colours.quiet;
  ink.lineWidth = 1;
  ink.textAlign = "right";
  ink.textBaseline = "middle";
  for (const v of ticks(...ys, Math.max(2, box.height / 60))) {
    ink.beginPath();
    ink.moveTo(box.left, down(v));
    ink.lineTo(box.left + box.width, down(v));
    ink.stroke();
    ink.fillText(told(v), box.left - 6, down(v));
  }
  ink.textAlign = "left";
  ink.textBaseline = "bottom";
  ink.fillText(title, box.left, box.top - 4);
  return { across, down };
}

function draw() {
  const { x, y, drawn } = state;
  const canvas = at("plot");
  const { width, height } = canvas.getBoundingClientRect();
  const sharp = devicePixelRatio;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    [canvas.width, canvas.height] = [Math.round(width * sharp), Math.round(height * sharp)];
  }
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(["line", "quiet", "data", "fit"].map(
    (name) => [name, style.getPropertyValue(`--${name}`)]));
  const ink = canvas.getContext("2d");
  ink.setTransform(sharp, 0, 0, sharp, 0, 0);
  ink.clearRect(0, 0, width, height);
  ink.font = "12px system-ui, sans-serif";
  const { left, right, top, gap, bottom } = MARGIN;
  const room = height - top - gap - bottom;
  const upper = { left, top, width: width - left - right, height: 0.7 * room };
  const lower = { ...upper, top: top + upper.height + gap, height: 0.3 * room };
  const xs = rangeOf(x);
  const residuals = drawn ? y.map((v, k) => v - drawn.there[k]) : [];
  const main = panel(ink, upper, xs, rangeOf([...y, ...(drawn?.curve ?? [])]), "", colours);
  const rest = panel(ink, lower, xs, rangeOf(residuals, 0), "residuals", colours);
  ink.textAlign = "center";
  ink.textBaseline = "top";
  for (const v of ticks(...xs, width / 90)) {
    ink.fillText(told(v), main.across(v), height - bottom + 6);
  }
  ink.fillStyle = colours.data;
  ink.globalAlpha = x.length > 400 ? 0.5 : 0.85;
  for (const [where, numbers] of [[main, y], [rest, residuals]]) {
    numbers.forEach((v, k) => {
      ink.beginPath();
      ink.arc(where.across(x[k]), where.down(v), x.length > 400 ? 1.8 : 3, 0, 2 * Math.PI);
      ink.fill();
    });
  }
  ink.globalAlpha = 1;
  ink.strokeStyle = colours.fit;
  ink.lineWidth = 2.2;
  ink.beginPath();
  drawn?.curve.forEach((v, k) => ink.lineTo(main.across(drawn.places[k]), main.down(v)));
  ink.moveTo(left, rest.down(0));
  ink.lineTo(width - right, rest.down(0));
  ink.stroke();
}

let waiting = null;

/** Draw what the model gives for the parameters; of several calls at once the last counts. */
async function redraw() {
  const mine = waiting = {};
  const { x, parameters, kernel } = state;
  if (kernel && x.length) {
    const [from, to] = rangeOf(x);
    const step = (to - from) / (CURVE - 1);
    const places = Float32Array.from({ length: CURVE }, (_, k) => from + k * step);
    const all = await values(Float32Array.from([...places, ...x]), parameters);
    if (mine !== waiting) return;
    state.drawn = { places, curve: all.subarray(0, CURVE), there: all.subarray(CURVE) };
  }
  draw();
}

// parameters --------------------------------------------------------------------------------------

/** The range of a slider: the bounds, or round about the value. */
function slides(k, value) {
  const reach = 2 * Math.max(Math.abs(value), Math.abs(start[k]), 0.5);
  return [low[k] ?? value - reach, high[k] ?? value + reach];
}

function makeForm() {
  names.forEach((name, k) => {
    const row = document.createElement("div");
    row.className = "parameter";
    const tags = ["label", "input", "input"];
    const [label, number, slider] = tags.map((tag) => document.createElement(tag));
    label.textContent = name;
    label.htmlFor = number.id = `number-${k}`;
    number.type = "number";
    number.step = "any";
    slider.type = "range";
    slider.step = "any";
    slider.setAttribute("aria-label", name);
    const moved = (input) => {
      if (state.fitting || !Number.isFinite(input.valueAsNumber)) return;
      state.parameters[k] = input.valueAsNumber;
      show(input === slider ? number : slider);
    };
    number.addEventListener("input", () => moved(number));
    slider.addEventListener("input", () => moved(slider));
    row.append(label, number, slider);
    at("parameters").append(row);
  });
}

/** Show the parameters; of all inputs, or of one that follows another. */
function show(only = null) {
  [...at("parameters").children].forEach((row, k) => {
    const [, number, slider] = row.children;
    const value = state.parameters[k];
    if (!only || only === number) number.value = told(value);
    if (only && only !== slider) return;
    if (!only && !(value > Number(slider.min) && value < Number(slider.max) && slider.min)) {
      [slider.min, slider.max] = slides(k, value);
    }
    slider.value = value;
  });
  return redraw();
}

// data --------------------------------------------------------------------------------------------

function take(text) {
  const rows = rowsIn(text);
  if (!rows.length) {
    at("read").textContent = "No rows of two numbers.";
    return;
  }
  state.fitting = false;
  state.x = Float32Array.from(rows, (row) => row[0]);
  state.y = Float32Array.from(rows, (row) => row[1]);
  state.drawn = null;
  at("read").textContent = `${rows.length} rows`;
  at("fit").disabled = !state.kernel;
  redraw();
}

async function takeFile(file) {
  if (!file) return;
  at("data").value = await file.text();
  take(at("data").value);
}

function listen() {
  at("data").addEventListener("input", () => take(at("data").value));
  at("file").addEventListener("change", () => takeFile(at("file").files[0]));
  for (const [event, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    addEventListener(event, (e) => {
      e.preventDefault();
      document.body.classList.toggle("dropping", over);
      if (event === "drop") takeFile(e.dataTransfer.files[0]);
    });
  }
  at("fit").addEventListener("click", () => {
    if (state.fitting) state.fitting = false;
    else fit().catch(trouble);
  });
  at("reset").addEventListener("click", () => {
    state.fitting = false;
    state.parameters = Float32Array.from(start);
    show();
    at("status").textContent = "At the start.";
  });
  addEventListener("resize", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

// the fit -----------------------------------------------------------------------------------------

const nextFrame = () => new Promise(requestAnimationFrame);

/** Fit from the parameters as they are, and draw after every step. */
async function fit() {
  const { kernel, x, y } = state;
  state.fitting = true;
  at("fit").textContent = "Stop";
  const data = new Float32Array(2 * x.length);
  x.forEach((v, k) => data.set([v, y[k]], 2 * k));
  let [began, frames] = [0, 0];
  try {
    for await (const now of kernel.minimizing(state.parameters.slice(), { data, every: 1 })) {
      if (!state.fitting) break;
      state.parameters = now.x;
      show();
      const time = await nextFrame();
      began ||= time; // the first step has compiled
      const rate = frames && ` ${Math.round(1000 * frames / (time - began))} frames a second.`;
      frames += 1;
      const ended = messages[now.status[0]];
      at("status").textContent = `Step ${now.nit[0]}, sum of squares ${told(2 * now.fun[0])}` +
        `${ended ? `: ${ended}` : ""}.${rate || ""}`;
    }
    await redraw();
  } finally {
    state.fitting = false;
    at("fit").textContent = "Fit";
  }
}

/** Say what went wrong. */
function trouble(error) {
  at("trouble").hidden = false;
  at("trouble").textContent = error.message;
  at("status").textContent = "";
}

async function begin() {
  const device = await requestDevice();
  device.lost.then(({ message }) => {
    trouble(new SymgradError(`The GPU was lost: ${message} Load the page again.`));
  });
  state.kernel = await create(device);
  const { vendor, architecture } = device.adapterInfo ?? {};
  at("adapter").textContent = ["WebGPU", vendor, architecture].filter(Boolean).join(" · ");
  if (!state.x.length) {
    const { x, y } = await example();
    at("data").value = Array.from(x, (v, k) => `${told(v)}, ${told(y[k])}`).join("\n");
    take(at("data").value);
    at("read").textContent += ", an example";
  }
  at("fit").disabled = false;
  at("status").textContent = "Move the sliders, or fit.";
}

for (const source of wgsl) {
  const text = document.createElement("pre");
  text.textContent = source;
  at("sources").append(text);
}
makeForm();
listen();
if (description.page.data) {
  at("data").value = description.page.data;
  take(at("data").value);
}
show();
begin().then(() => show()).catch(trouble);
