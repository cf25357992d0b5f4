const ITERATIONS = 60000; // of all loops of an invocation in one dispatch, at most
const SERIAL = 5e7; // operations of an invocation in one dispatch, about and at most
const SECONDS = 0.1; // that a dispatch should take, at most: watchdogs wait for two or more
const GROWTH = 4; // by which the number of steps may grow from a dispatch to the next
const SPEED = 5e9; // operations in a second, as long as nothing is known of the device
const PROGRESS_BYTES = 8; // bytes by which a dispatch tells how far the work is
const MANY_ROWS = 64; // from which a workgroup may be worth while for a problem
const FEW_PROBLEMS = 8192; // up to which it is
const RESULTS = ["x", "fun", "nit", "status", "success"];

/** What a step of a point of so many rows costs: see `StepCost`. */
function costAt(cost, rows) {
  const { operations, iterations, row_operations, row_iterations } = cost;
  const share = divided(rows * cost.terms, cost.threads);
  const blocks = divided(share, cost.block);
  return {
    each: operations + rows * row_operations,
    serial: operations + share * row_operations,
    iterations: iterations + share * row_iterations + blocks * cost.block_iterations,
  };
}

/** Minimisations from many starts at once: what `of_minimization` of the description says. */
class Minimizer {
  #forms = new Map();
  #speed = SPEED;

  constructor(gpu, given, wgsl) {
    Object.assign(this, given, { gpu, wgsl });
  }

  async minimize(starts, options = {}) {
    let last;
    for await (const now of this.#all(starts, options, Infinity)) last = now;
    return last;
  }

  minimizing(starts, options = {}) {
    return this.#all(starts, options, options.every ?? 1);
  }

  destroy() {
    this.#forms.forEach(async (made) => {
      const { spread, gather, stages } = await made;
      [spread, gather, ...stages.map(({ launch }) => launch)].forEach((one) => one.destroy());
    });
  }

  /** The results after every so many steps. */
  async *#all(starts, { data, stay = false }, every) {
    const problems = this.#problems(starts, data);
    const form = await this.#form(this.#formOf(problems));
    const { gpu } = this;
    const lease = new Lease(gpu);
    try {
      const run = await this.#begin(lease, form, problems, starts, data);
      if (!problems.count) yield this.#ends(await this.#gathered(run, false), stay);
      for (let [stage, done] = [0, 0]; stage < form.stages.length && problems.count;) {
        const { steps } = form.stages[stage];
        const now = Math.min(every, steps - done);
        const active = now > 0 && await this.#advance(run, form.stages[stage], now);
        done += now;
        const over = done >= steps || !active;
        if (over) [stage, done] = [stage + 1, 0];
        const last = stage === form.stages.length;
        if (last || every !== Infinity) yield this.#ends(await this.#gathered(run, stay), stay);
      }
    } finally {
      lease.end();
    }
  }

  /** How many problems and rows there are, or what does not fit. */
  #problems(starts, data) {
    const { inputs, shared, own, gpu, pairs } = this;
    gpu.check();
    const numbers = (a, what) => (
      a instanceof GPUBuffer ? a.size : sentAs(pairs, a, what).byteLength) / bytesOf(pairs);
    const count = rowsOf(numbers(starts, "the starts"), inputs, "the starts");
    if (!shared && !own) return { count, rows: 0 };
    if (data === undefined) {
      throw new SymgradError("minimize(starts, {data}): the data are missing");
    }
    const size = numbers(data, "the data");
    return { count, rows: rowsOf(size, own ? own * Math.max(count, 1) : shared, "the data") };
  }

  /** An invocation for each problem, or a workgroup. */
  #formOf({ count, rows }) {
    const few = count <= FEW_PROBLEMS && rows >= MANY_ROWS && this.forms.together;
    const { cost } = this.forms.alone.stages[0].launch.until;
    return few || costAt(cost, rows).iterations > ITERATIONS ? "together" : "alone";
  }

  /** The compiled kernels of a form. */
  #form(kind) {
    if (!this.#forms.has(kind)) this.#forms.set(kind, this.#compiled(kind));
    return this.#forms.get(kind);
  }

  async #compiled(kind) {
    const given = this.forms[kind];
    if (!given) throw new SymgradError("there are too many rows for a problem");
    const { gpu, wgsl } = this;
    const compiled = (s) => Launch.of(gpu, s.launch, wgsl);
    const [spread, gather, transpose, ...launches] = await Promise.all([
      Points.of(gpu, given.spread, wgsl), Points.of(gpu, given.gather, wgsl),
      compiled(this.transpose), ...given.stages.map(compiled),
    ]);
    const stages = given.stages.map(({ steps }, k) => ({ steps, launch: launches[k] }));
    return { kind, spread, gather, transpose, stages };
  }

  /** The states of all problems, and what steps need beside them. */
  async #begin(lease, form, { count, rows }, starts, data) {
    const { gpu, state, own, inputs, pairs } = this;
    const each = bytesOf(pairs);
    const most = Math.floor(gpu.maxBinding / (each * Math.max(state, rows * own)));
    const run = { lease, form, count, rows };
    if (count > Math.min(most, form.spread.most)) {
      throw new SymgradError(`${count} problems at once: this device takes ${most}`);
    }
    if (!count) return run;
    const x = placed(lease, starts, "the starts", pairs);
    const given = rows ? placed(lease, data, "the data", pairs) : lease.room(each);
    run.shared = own ? lease.room(each) : given;
    run.own = own ? given : lease.room(each);
    run.states = lease.room(each * count * state);
    run.progress = lease.room(PROGRESS_BYTES);
    const steps = form.spread.steps(lease, count, { ...x, size: each * count * inputs },
      [run.states]);
    if (own && rows && form.kind === "alone") {
      run.own = lease.room(given.size);
      steps.push(...this.#transposed(lease, form, given, run.own, count, rows * own));
    }
    const fault = await gpu.submit(steps);
    if (fault) throw fault;
    return run;
  }

  /** The steps that write the columns of rows one after another. */
  #transposed(lease, { transpose }, x, y, batch, columns) {
    const { tile } = this.transpose;
    const tiles = divided(batch, tile) * divided(columns, tile);
    return transpose.steps(lease, { x, y }, { batch, columns, tiles });
  }

  /** Do steps, in as few dispatches as the device stands; whether any problem is active. */
  async #advance(run, stage, steps) {
    const { each, serial, iterations } = costAt(stage.launch.until.cost, run.rows);
    if (iterations > ITERATIONS) {
      throw new SymgradError(`${run.rows} rows are too many for a problem`);
    }
    const fit = Math.min(ITERATIONS / iterations, SERIAL / serial);
    const most = Math.max(1, Math.floor(fit));
    let now = Math.max(1, Math.floor(SECONDS * this.#speed / (each * run.count)));
    while (steps > 0) {
      now = Math.min(now, most, steps, Math.floor(2 ** 32 / run.count));
      const even = divided(steps, divided(steps, now));
      const [took, done, active] = await this.#dispatch(run, stage, even);
      steps -= even;
      if (!active) return false;
      this.#speed = Math.max(this.#speed, done * each / took);
      now = Math.max(1, Math.min(GROWTH * now, Math.floor(now * SECONDS / took)));
    }
    return true;
  }

  /** Do some steps: the seconds it took, the steps of all problems, and how many are active. */
  async #dispatch(run, stage, steps) {
    const { gpu } = this;
    const { progress, own, shared, states, count, rows } = run;
    return gpu.lent(async (lease) => {
      gpu.device.queue.writeBuffer(progress.buffer, 0, new Uint32Array(2));
      const places = { own, shared, states, progress };
      const dispatch = stage.launch.steps(lease, places, { batch: count, rows, steps });
      const start = performance.now();
      const [bytes] = await gpu.read(dispatch, [progress]);
      const [done, active] = new Uint32Array(bytes);
      return [Math.max(performance.now() - start, 0.01) / 1000, done, active];
    });
  }

  /** What a result shows of the states: on the device if it is to stay. */
  async #gathered({ form, states, count }, stay) {
    const { gpu, pairs } = this;
    const widths = form.gather.widths.slice(0, RESULTS.length);
    if (!count) return widths.map(() => readAs(pairs, new ArrayBuffer(0)));
    return gpu.lent(async (lease) => {
      const kept = (k, j) => (stay && j < RESULTS.length
        ? { buffer: gpu.storage(4 * k * count), offset: 0, size: 4 * k * count }
        : lease.room(4 * k * count));
      const rooms = form.gather.widths.map(kept);
      const steps = form.gather.steps(lease, count, states, rooms);
      if (stay) {
        const fault = await gpu.submit(steps);
        if (fault) throw fault;
        return rooms.slice(0, RESULTS.length).map(({ buffer }) => buffer);
      }
      const bytes = await gpu.read(steps, rooms.slice(0, RESULTS.length));
      return bytes.map((b) => readAs(pairs, b));
    });
  }

  #ends(found, stay) {
    const [x, fun, nit, status, success] = found;
    if (stay) return { x, fun, nit, status, success };
    const [steps, ends] = [Int32Array.from(nit), Int32Array.from(status)];
    return { x, fun, nit: steps, status: ends, success: Uint8Array.from(success) };
  }
}


MAKERS.minimization = async (gpu, given, wgsl) => new Minimizer(gpu, given, wgsl);
