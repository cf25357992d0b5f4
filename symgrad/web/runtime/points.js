/** Results at points, an invocation each: what `of_points` of the description says. */
class Points {
  /** Compile one. */
  static async of(gpu, given, wgsl) {
    return new Points(gpu, given, await Launch.of(gpu, given, wgsl));
  }

  constructor(gpu, { inputs: [x], outputs, pairs, dispatches: [{ slots, width }] }, launch) {
    Object.assign(this, { gpu, launch, outputs, pairs, inputs: x.size });
    this.widths = outputs.map((o) => o.size);
    const widest = 4 * Math.max(x.size, ...this.widths, slots);
    const fit = Math.floor(gpu.maxBinding / widest / width) * width;
    this.most = Math.min(fit, GROUPS * width); // points of a dispatch
    if (!this.most) throw new SymgradError("the device has no room for a workgroup of points");
  }

  /** The steps for points that are there, and results that go there. */
  steps(lease, count, points, results) {
    const places = Object.fromEntries(this.outputs.map(({ name }, k) => [name, results[k]]));
    return this.launch.steps(lease, { x: points, ...places }, { batch: count });
  }

  /** Call `some(start, count)` for as many points at a time as a dispatch takes. */
  async inTurn(count, some) {
    for (let start = 0; start < count; start += this.most) {
      await some(start, Math.min(this.most, count - start));
    }
  }

  destroy() {
    this.launch.destroy();
  }
}

/** A kernel of points: see `PointKernel` in the types. */
class PointKernel {
  #points;

  constructor(points) {
    this.#points = points;
  }

  async run(values) {
    const { inputs, widths, outputs, pairs, gpu } = this.#points;
    const points = sentAs(pairs, values, "the points");
    const count = rowsOf(points.length, inputs, "the points");
    const found = widths.map((k) => new Float32Array(count * k));
    await this.#points.inTurn(count, (start, some) => gpu.lent(async (lease) => {
      const sent = lease.sent(points.subarray(start * inputs, (start + some) * inputs));
      const results = widths.map((k) => lease.room(4 * k * some));
      const bytes = await gpu.read(this.#points.steps(lease, some, sent, results), results);
      bytes.forEach((b, k) => found[k].set(new Float32Array(b), start * widths[k]));
    }));
    return Object.fromEntries(
      outputs.map((o, k) => [o.name, pairs ? joined(found[k]) : found[k]]));
  }

  runOnDevice(points, count, into = {}) {
    const { inputs, widths, outputs, gpu, most } = this.#points;
    gpu.check();
    const results = outputs.map((o, k) => into[o.name] ?? gpu.storage(4 * widths[k] * count));
    const all = [points, ...results];
    all.forEach((buffer, k) => {
      const [name, columns] = k ? [outputs[k - 1].name, widths[k - 1]] : ["points", inputs];
      requireBuffer(buffer, name, 4 * columns * count);
    });
    const lease = new Lease(gpu);
    const steps = [];
    for (let start = 0; start < count; start += most) {
      const some = Math.min(most, count - start);
      const [x, ...y] = all.map((buffer, k) => {
        const columns = k ? widths[k - 1] : inputs;
        return part({ buffer, offset: 0 }, start * columns, some * columns);
      });
      steps.push(...this.#points.steps(lease, some, x, y));
    }
    gpu.queue(steps);
    lease.end();
    return Object.fromEntries(outputs.map((o, k) => [o.name, results[k]]));
  }

  destroy() {
    this.#points.destroy();
  }
}

MAKERS.points = async (gpu, given, wgsl) => new PointKernel(await Points.of(gpu, given, wgsl));
