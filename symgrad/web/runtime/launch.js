const KINDS = { f: Float32Array, i: Int32Array, u: Uint32Array };

/** Arrays in, arrays out, by several dispatches: what `of_launch` of the description says. */
class LaunchKernel {
  /** Compile one. */
  static async of(gpu, given, wgsl) {
    const made = new LaunchKernel();
    Object.assign(made, given, { gpu });
    made.compiled = await Promise.all(given.dispatches.map(({ modules, readable, writable }) => (
      gpu.pipelines(modules.map((k) => wgsl[k]), readable, writable))));
    made.tables = given.tables.map((numbers) => gpu.filled(new Float32Array(numbers)));
    return made;
  }

  async run(arrays) {
    const { gpu, inputs, outputs, scratch } = this;
    return gpu.lent(async (lease) => {
      const places = {};
      for (const { name, shape, kind, size } of inputs) {
        const given = arrays?.[name];
        if (!(given instanceof KINDS[kind]) || given.length !== size) {
          throw new SymgradError(`${name}: a ${KINDS[kind].name} of ${size} numbers is needed, ` +
            `of shape (${shape.join(", ")})`);
        }
        places[name] = lease.sent(given, QUAD);
      }
      for (const { name, size } of [...outputs, ...scratch]) {
        places[name] = lease.room(rounded(4 * size, QUAD));
      }
      const steps = this.dispatches.flatMap(
        (d, k) => this.#steps(lease, places, d, this.compiled[k]));
      const wanted = outputs.map(({ name, size }) => part(places[name], 0, size));
      const bytes = await gpu.read(steps, wanted);
      return Object.fromEntries(
        outputs.map(({ name, kind }, k) => [name, new KINDS[kind](bytes[k])]));
    });
  }

  #steps(lease, places, { arrays, count, words, across, down, scratch }, { made, layout }) {
    const bound = arrays.map(({ name, table, size }) => {
      if (table !== undefined) {
        const buffer = this.tables[table];
        return { buffer, offset: 0, size: buffer.size };
      }
      return { ...places[name], size: size || QUAD };
    });
    if (scratch) bound.push(lease.room(scratch));
    const group = lease.bind(layout, count, bound, words);
    return made.map((pipeline) => ({ pipeline, group, across, down }));
  }

  destroy() {
    this.tables.forEach((buffer) => buffer.destroy());
  }
}

MAKERS.launch = (gpu, given, wgsl) => LaunchKernel.of(gpu, given, wgsl);
