/** The kernel that a description is of, on a device. */
async function open(device, description, wgsl) {
  const gpu = Gpu.of(device);
  gpu.check();
  const made = Object.keys(MAKERS).filter((name) => name in description);
  const parts = await Promise.all(made.map((name) => MAKERS[name](gpu, description[name], wgsl)));
  return new Kernel(description, parts);
}

/** What all parts of a kernel can do, in one. */
class Kernel {
  constructor({ name, inputs }, parts) {
    Object.assign(this, { name, inputs });
    for (const part of parts) {
      for (const method of Object.getOwnPropertyNames(Object.getPrototypeOf(part))) {
        if (!["constructor", "destroy"].includes(method)) this[method] = part[method].bind(part);
      }
    }
    this.destroy = () => parts.forEach((part) => part.destroy());
  }
}

