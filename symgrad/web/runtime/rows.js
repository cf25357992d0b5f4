const BUSY = 512; // workgroups that keep a GPU busy
const TOGETHER = 64; // rows of which blocks are whole multiples

/** Sums over rows: what `of_sums` of the description says. */
class Rows {
  /** Compile one. */
  static async of(gpu, given, wgsl) {
    const rows = new Rows(gpu, given);
    rows.launch = await Launch.of(gpu, given.launch, wgsl);
    return rows;
  }

  constructor(gpu, given) {
    Object.assign(this, given, { gpu, quad: quadOf(given.pairs) });
    const fit = Math.floor(gpu.maxBinding / (4 * Math.max(given.columns, 1)));
    const blocks = given.parts.map((p) => this.#mostGroups(p) * p.width * p.most);
    this.block = Math.floor(Math.min(fit, ...blocks) / TOGETHER) * TOGETHER;
    if (!this.block) throw new SymgradError("the device has no room for rows of so many numbers");
  }

  /** The workgroups that memory for their loops has room for. */
  #mostGroups({ slots, width }) {
    return slots ? Math.min(GROUPS, Math.floor(this.gpu.maxBinding / (4 * slots * width))) : GROUPS;
  }

  /** How many workgroups add up so many rows. */
  groups(part, count) {
    if (!part.summed.length) return 1;
    const needed = divided(count, part.width * part.most);
    const useful = divided(count, part.width * this.each);
    return Math.max(needed, Math.min(BUSY, this.#mostGroups(part), useful), 1);
  }

  /** The sums over rows that are there, in double precision and a fixed order. */
  async sums(rows, count, parameters) {
    const found = new Float64Array(this.results);
    for (let start = 0; start < count; start += this.block) {
      await this.#add(found, rows, start, Math.min(this.block, count - start), parameters);
    }
    return found;
  }

  #add(found, rows, start, count, parameters) {
    return this.gpu.lent(async (lease) => {
      const first = lease.sent(parameters.length ? parameters : new Float32Array(2), this.quad);
      const each = bytesOf(this.pairs);
      const size = rounded(4 * count * this.columns, this.quad) || this.quad;
      const source = { buffer: rows, offset: 4 * start * this.columns, size };
      const groups = this.parts.map((part) => this.groups(part, count));
      const targets = this.parts.map((p, k) => lease.room(each * (p.head + groups[k] * p.columns)));
      const [places, sizes] = [{ rows: source, parameters: first }, { batch: count }];
      groups.forEach((n, k) => {
        places[`partials${k}`] = targets[k];
        sizes[`groups${k}`] = n;
      });
      const bytes = await this.gpu.read(this.launch.steps(lease, places, sizes), targets);
      const read = bytes.map((b) => readAs(this.pairs, b));
      this.parts.forEach((p, k) => addPart(found, p, read[k], groups[k], count));
    });
  }
}

/** Add what a part has found over some rows to the sums: its factors stand first. */
function addPart(found, part, numbers, groups, count) {
  const [first] = part.results;
  part.summed.forEach((k, j) => {
    const start = part.head + part.cells[j] * groups;
    found[k] += total(numbers.subarray(start, start + groups)) * numbers[k - first];
  });
  const size = part.results[1] - first;
  part.fixed.forEach((k, j) => { found[k] += count * numbers[size + j] * numbers[k - first]; });
}

/** A kernel of a loss over data: see `RowKernel` in the types. */
class RowKernel {
  #rows;

  constructor(rows) {
    this.#rows = rows;
  }

  async run(params, values) {
    const bound = this.bind(values);
    try {
      return await bound.run(params);
    } finally {
      bound.destroy();
    }
  }

  bind(values, count) {
    return new BoundRows(this.#rows, values, count);
  }

  destroy() {
    this.#rows.launch.destroy();
  }
}

MAKERS.rows = async (gpu, given, wgsl) => new RowKernel(await Rows.of(gpu, given, wgsl));

/** Rows that stay on the device. */
class BoundRows {
  #rows;
  #buffer;
  #own;

  constructor(rows, values, count) {
    const { gpu, columns, reduce, weight, pairs, quad } = rows;
    gpu.check();
    this.#rows = rows;
    this.#own = !(values instanceof GPUBuffer);
    if (this.#own) {
      const numbers = sentAs(pairs, values, "the rows");
      this.count = rowsOf(numbers.length, columns, "the rows");
      const width = values.length / this.count;
      const weights = weight !== null && values.filter((_, k) => k % width === weight);
      this.weight = weights ? total(weights) : this.count;
      this.#buffer = gpu.storage(rounded(numbers.byteLength, quad) || quad);
      gpu.device.queue.writeBuffer(this.#buffer, 0, numbers);
      return;
    }
    if (reduce === "mean" && weight !== null) {
      throw new SymgradError("the mean of weighted rows: give the rows as a Float32Array");
    }
    this.count = this.weight = count ?? Math.floor(values.size / (4 * columns));
    requireBuffer(values, "the rows", rounded(4 * columns * this.count, quad));
    this.#buffer = values;
  }

  async run(params) {
    const { parameters, used, outputs, reduce, pairs } = this.#rows;
    const Numbers = pairs ? Float64Array : Float32Array;
    sentAs(pairs, params, "the parameters"); // which throws at other arrays
    if (params.length !== parameters) {
      throw new SymgradError(`${params.length} parameters: ${parameters} are needed`);
    }
    if (reduce === "mean" && !this.weight) {
      throw new SymgradError("the mean over no rows, or over weights of 0, is not defined");
    }
    const read = Numbers.from(used, (k) => params[k]);
    const sent = sentAs(pairs, read, "the parameters");
    const sums = await this.#rows.sums(this.#buffer, this.count, sent);
    const scale = reduce === "mean" ? 1 / this.weight : 1;
    return Object.fromEntries(outputs.map(({ name, size, from, to }) => {
      if (size === null) return [name, sums[from[0]] * scale];
      const found = new Numbers(size);
      from.forEach((k, j) => { found[to[j]] = sums[k] * scale; });
      return [name, found];
    }));
  }

  destroy() {
    if (this.#own) this.#buffer.destroy();
  }
}
