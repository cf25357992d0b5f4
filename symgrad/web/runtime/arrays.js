const KINDS = { f: Float32Array, i: Int32Array, u: Uint32Array };

/** Arrays of known shapes in, arrays out. */
class LaunchKernel {
  #launch;

  constructor(launch) {
    this.#launch = launch;
  }

  async run(arrays) {
    const { gpu, inputs, outputs, scratch } = this.#launch;
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
        places[name] = lease.room(rounded(4 * size, QUAD) || QUAD);
      }
      const wanted = outputs.map(({ name, size }) => part(places[name], 0, size));
      const bytes = await gpu.read(this.#launch.steps(lease, places), wanted);
      return Object.fromEntries(
        outputs.map(({ name, kind }, k) => [name, new KINDS[kind](bytes[k])]));
    });
  }

  destroy() {
    this.#launch.destroy();
  }
}

MAKERS.launch = async (gpu, given, wgsl) => new LaunchKernel(await Launch.of(gpu, given, wgsl));
