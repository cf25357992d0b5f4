/** The dispatches of one call, compiled: what `of_launch` of the description says. */
class Launch {
  /** Compile one. */
  static async of(gpu, given, wgsl) {
    const launch = new Launch();
    Object.assign(launch, given, { gpu });
    launch.compiled = await Promise.all(given.dispatches.map(({ modules, readable, writable }) => (
      gpu.pipelines(modules.map((k) => wgsl[k]), readable, writable))));
    launch.constants = given.tables.map((numbers) => gpu.filled(new Float32Array(numbers)));
    return launch;
  }

  /** The steps, with arrays at places by their names, and sizes by theirs. */
  steps(lease, places, sizes = {}) {
    return this.dispatches.flatMap((d, k) => {
      const { made, layout } = this.compiled[k];
      const of = (n) => (typeof n === "string" ? sizes[n] : n);
      const count = of(d.count);
      const [across, down] = gridOf(of(d.groups) || divided(count, d.width));
      const bound = d.arrays.map(({ name, table }) => (
        table === undefined ? places[name] : whole(this.constants[table])));
      if (d.slots) bound.push(lease.room(4 * d.slots * d.width * across * down));
      const group = lease.bind(layout, count, bound, d.words.map(of));
      return made.map((pipeline) => ({ pipeline, group, across, down }));
    });
  }

  destroy() {
    this.constants.forEach((buffer) => buffer.destroy());
  }
}
