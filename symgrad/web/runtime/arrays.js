const WORDS = { i: Int32Array, u: Uint32Array };

/** Arrays of known shapes in, arrays out. */
class LaunchKernel {
  #launch;

  constructor(launch) {
    this.#launch = launch;
  }

  async run(arrays) {
    const { gpu, inputs, outputs, scratch, pairs } = this.#launch;
    const kinds = { ...WORDS, f: pairs ? Float64Array : Float32Array };
    const quad = quadOf(pairs);
    const sizeOf = ({ kind, size }) => bytesOf(kind === "f" && pairs) * size;
    return gpu.lent(async (lease) => {
      const places = {};
      for (const { name, shape, kind, size } of inputs) {
        const given = arrays?.[name];
        if (!(given instanceof kinds[kind]) || given.length !== size) {
          throw new SymgradError(`${name}: a ${kinds[kind].name} of ${size} numbers is needed, ` +
            `of shape (${shape.join(", ")})`);
        }
        places[name] = lease.sent(kind === "f" && pairs ? split(given, name) : given, quad);
      }
      for (const array of [...outputs, ...scratch]) {
        places[array.name] = lease.room(rounded(sizeOf(array), quad) || quad);
      }
      const wanted = outputs.map((array) => part(places[array.name], 0, sizeOf(array) / 4));
      const bytes = await gpu.read(this.#launch.steps(lease, places), wanted);
      const read = (kind, b) => (kind === "f" ? readAs(pairs, b) : new WORDS[kind](b));
      return Object.fromEntries(outputs.map(({ name, kind }, k) => [name, read(kind, bytes[k])]));
    });
  }

  destroy() {
    this.#launch.destroy();
  }
}

MAKERS.launch = async (gpu, given, wgsl) => new LaunchKernel(await Launch.of(gpu, given, wgsl));
