/** What went wrong, and how to put it right. */
export class SymgradError extends Error {
  name = "SymgradError";
}

/** How to switch WebGPU on, where it is missing. */
export const WITHOUT_WEBGPU =
  "This browser has no WebGPU here. Chrome and Edge have it from version 113 on, Safari from 26, " +
  "Firefox from 141 on Windows and 145 on Macs. On Linux start Chrome with " +
  "--enable-unsafe-webgpu --enable-features=Vulkan, or set dom.webgpu.enabled in Firefox's " +
  "about:config. Pages have to come from https:, from localhost or from a file.";

/** A GPUDevice with the limits of its adapter. */
export async function requestDevice(options = {}) {
  if (!globalThis.navigator?.gpu) throw new SymgradError(WITHOUT_WEBGPU);
  const adapter = await navigator.gpu.requestAdapter(options);
  if (!adapter) {
    throw new SymgradError("This browser has WebGPU, but no GPU for it: chrome://gpu or " +
      `about:support tells why. ${WITHOUT_WEBGPU}`);
  }
  const requiredLimits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  return adapter.requestDevice({ requiredLimits });
}

const LIMITS = [
  "maxStorageBufferBindingSize", "maxBufferSize", "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
];
const SCOPES = ["validation", "out-of-memory", "internal"];
const GROUPS = 65535; // workgroups in one dimension of a dispatch, at most
const IDLE_BYTES = 2 ** 28; // of buffers that are kept to be used again, at most
const bytesOf = (pairs) => (pairs ? 8 : 4); // bytes of a number
const quadOf = (pairs) => 4 * bytesOf(pairs); // bytes of four numbers, of which arrays are whole
const LOSS_MS = 200; // to wait for word of a lost device where nothing can be read

const MAKERS = {}; // what makes the parts of a kernel, by their names in its description

const divided = (a, b) => Math.ceil(a / b);
const rounded = (n, unit) => divided(n, unit) * unit;
const total = (numbers) => numbers.reduce((a, b) => a + b, 0);

/** The workgroups across and down of at least so many. */
function gridOf(groups) {
  const down = divided(groups, GROUPS);
  return [divided(groups, down), down];
}

/** The numbers of a Float32Array; a clear error for anything else. */
function floats(values, what) {
  if (values instanceof Float32Array) return values;
  throw new SymgradError(`${what}: a Float32Array is needed, as Float32Array.from(...) makes it`);
}

/** Numbers of double precision as pairs of float32: the nearest, and the one nearest to the rest. */
function split(values, what) {
  if (!(values instanceof Float64Array)) {
    throw new SymgradError(`${what}: a Float64Array is needed, as Float64Array.from(...) makes it`);
  }
  const pairs = new Float32Array(2 * values.length);
  values.forEach((x, k) => {
    const high = Math.fround(x);
    pairs[2 * k] = high;
    pairs[2 * k + 1] = Number.isFinite(high) ? x - high : 0;
  });
  return pairs;
}

/** Pairs of float32 as numbers of double precision; a zero has the sign of the first. */
function joined(pairs) {
  return Float64Array.from({ length: pairs.length / 2 },
    (_, k) => (pairs[2 * k] === 0 ? pairs[2 * k] : pairs[2 * k] + pairs[2 * k + 1]));
}

/** How many rows of so many numbers there are; a clear error if they are not whole. */
function rowsOf(length, width, what) {
  if (length % width === 0) return length / width;
  throw new SymgradError(`${what} has ${length} numbers: rows of ${width} are needed`);
}

/** The range of all of a buffer. */
const whole = (buffer) => ({ buffer, offset: 0, size: buffer.size });

/** A part of a range, in numbers of four bytes. */
const part = (range, start, count) => (
  { buffer: range.buffer, offset: range.offset + 4 * start, size: 4 * count });

/** The numbers that a call takes, as the device has them; a clear error for other arrays. */
const sentAs = (pairs, values, what) => (pairs ? split : floats)(values, what);

/** Bytes that a call reads, as the numbers that it gives. */
const readAs = (pairs, bytes) => (
  pairs ? joined(new Float32Array(bytes)) : new Float32Array(bytes));

/** Refuse what is no buffer of storage with so many bytes. */
function requireBuffer(buffer, what, nbytes) {
  if (!(buffer instanceof GPUBuffer) || !(buffer.usage & GPUBufferUsage.STORAGE)) {
    throw new SymgradError(`${what}: a GPUBuffer with GPUBufferUsage.STORAGE is needed`);
  }
  if (buffer.size < nbytes) {
    throw new SymgradError(
      `${what}: a GPUBuffer of ${buffer.size} bytes, where ${nbytes} are needed`);
  }
}

/** A device as kernels use it: pipelines, buffers that are used again, errors as exceptions. */
class Gpu {
  static #known = new WeakMap();

  /** The one of a device, which all kernels there share. */
  static of(device) {
    if (typeof device?.createComputePipelineAsync !== "function") {
      throw new SymgradError("create() takes a GPUDevice, such as await requestDevice() gives");
    }
    if (!Gpu.#known.has(device)) Gpu.#known.set(device, new Gpu(device));
    return Gpu.#known.get(device);
  }

  #idle = new Map();
  #idleBytes = 0;
  #layouts = new Map();
  #fault = null;
  #lost = null;

  constructor(device) {
    this.device = device;
    this.maxBinding = Math.min(device.limits.maxStorageBufferBindingSize, 2 ** 31);
    device.lost.then((info) => { this.#lost = info; });
  }

  /** Throw if the device is lost, or has refused what it was given. */
  check() {
    if (this.#lost) {
      throw new SymgradError(`the GPU device was lost (${this.#lost.reason}): ` +
        `${this.#lost.message} Request another device, and create the kernel there.`);
    }
    const fault = this.#fault;
    this.#fault = null;
    if (fault) throw fault;
  }

  /** Do some work on the device; the promise is of what it finds wrong, or of null. */
  #watched(work) {
    for (const scope of SCOPES) this.device.pushErrorScope(scope);
    let popped;
    try {
      work();
    } finally {
      popped = SCOPES.map(() => this.device.popErrorScope().catch(() => null));
    }
    return Promise.all(popped).then((errors) => {
      const error = errors.find(Boolean);
      return error ? new SymgradError(`the GPU refused: ${error.message}`) : null;
    });
  }

  // compiling -------------------------------------------------------------------------------------

  /** The pipelines of modules whose first arrays are only read, and the others written. */
  async pipelines(sources, readable, writable) {
    const most = this.device.limits.maxStorageBuffersPerShaderStage;
    if (readable + writable > most) {
      throw new SymgradError(`the device binds ${most} arrays and the kernel has ` +
        `${readable + writable}: request it with a higher maxStorageBuffersPerShaderStage`);
    }
    const layout = this.#layout(readable, writable);
    const made = await Promise.all(sources.map((code) => this.#pipeline(code, layout.pipeline)));
    return { made, layout: layout.group };
  }

  async #pipeline(code, layout) {
    this.check();
    let module;
    const refused = this.#watched(() => { module = this.device.createShaderModule({ code }); });
    const { messages } = await module.getCompilationInfo();
    const wrong = messages.filter((m) => m.type === "error");
    if (wrong.length) {
      const told = wrong.map((m) => `line ${m.lineNum}: ${m.message}`).join("\n");
      throw new SymgradError(`the kernel does not compile here:\n${told}`);
    }
    const fault = await refused;
    if (fault) throw fault;
    try {
      return await this.device.createComputePipelineAsync(
        { layout, compute: { module, entryPoint: "main" } });
    } catch (error) {
      throw new SymgradError(`the kernel does not compile here: ${error.message}`);
    }
  }

  #layout(readable, writable) {
    const key = `${readable} ${writable}`;
    if (!this.#layouts.has(key)) {
      const kinds = ["uniform", ...Array(readable).fill("read-only-storage"),
        ...Array(writable).fill("storage")];
      const entries = kinds.map((type, binding) => (
        { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type } }));
      const group = this.device.createBindGroupLayout({ entries });
      const pipeline = this.device.createPipelineLayout({ bindGroupLayouts: [group] });
      this.#layouts.set(key, { group, pipeline });
    }
    return this.#layouts.get(key);
  }

  // memory ----------------------------------------------------------------------------------------

  /** A new buffer of storage, whose owner destroys it. */
  storage(nbytes) {
    return this.#buffer(rounded(Math.max(nbytes, 4), 4),
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST);
  }

  /** A buffer with these numbers, whose owner destroys it. */
  filled(numbers) {
    const buffer = this.storage(numbers.byteLength);
    this.device.queue.writeBuffer(buffer, 0, numbers);
    return buffer;
  }

  #buffer(size, usage) {
    if (size > this.device.limits.maxBufferSize) {
      throw new SymgradError(`the device has no buffer of ${size} bytes: request it with a ` +
        "higher maxBufferSize, or run fewer points at a time");
    }
    return this.device.createBuffer({ size, usage });
  }

  /** A buffer for a usage that is given back: of at least so many bytes, with anything in it. */
  take(nbytes, usage) {
    const unit = Math.max(256, 2 ** (Math.floor(Math.log2(Math.max(nbytes, 1))) - 3));
    const size = Math.min(rounded(nbytes, unit) || unit, this.device.limits.maxBufferSize);
    const idle = this.#idle.get(`${size} ${usage}`);
    if (!idle?.length) return this.#buffer(Math.max(size, rounded(nbytes, 4)), usage);
    this.#idleBytes -= size;
    return idle.pop();
  }

  /** Give a buffer back: what was submitted may still use it, and comes before what is next. */
  give(buffer) {
    if (this.#idleBytes + buffer.size > IDLE_BYTES) {
      buffer.destroy();
      return;
    }
    const key = `${buffer.size} ${buffer.usage}`;
    if (!this.#idle.has(key)) this.#idle.set(key, []);
    this.#idle.get(key).push(buffer);
    this.#idleBytes += buffer.size;
  }

  /** What a call takes, for as long as it takes to submit it. */
  async lent(call) {
    const lease = new Lease(this);
    try {
      return await call(lease);
    } finally {
      lease.end();
    }
  }

  // work ------------------------------------------------------------------------------------------

  /** Start steps, and then copies; the promise is of the error, or of null. */
  submit(steps, copies = []) {
    this.check();
    return this.#watched(() => {
      const encoder = this.device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      for (const { pipeline, group, across, down = 1 } of steps) {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(across, down);
      }
      pass.end();
      for (const copy of copies) encoder.copyBufferToBuffer(...copy);
      this.device.queue.submit([encoder.finish()]);
    });
  }

  /** Start steps that nobody waits for: what is wrong with them, the next call throws. */
  queue(steps) {
    this.submit(steps).then((fault) => { this.#fault ??= fault; });
  }

  /** Start steps, and wait for the bytes of these ranges, an ArrayBuffer each. */
  async read(steps, ranges) {
    const ends = [];
    for (const r of ranges) ends.push((ends.at(-1) ?? 0) + rounded(r.size, 8));
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    const staging = this.take(ends.at(-1), usage);
    const copies = ranges.map((r, k) => [r.buffer, r.offset, staging, ends[k - 1] ?? 0, r.size]);
    const refused = this.submit(steps, copies);
    try {
      await staging.mapAsync(GPUMapMode.READ, 0, rounded(ends.at(-1), 8));
    } catch (error) {
      const word = new Promise((resolve) => { setTimeout(resolve, LOSS_MS); });
      await Promise.race([this.device.lost, word]);
      this.check();
      throw (await refused) ?? new SymgradError(`results cannot be read: ${error.message}`);
    }
    const fault = await refused;
    const all = staging.getMappedRange(0, rounded(ends.at(-1), 8));
    const found = ranges.map((r, k) => all.slice(ends[k - 1] ?? 0, (ends[k - 1] ?? 0) + r.size));
    staging.unmap();
    this.give(staging);
    if (fault) throw fault;
    return found;
  }
}

/** Buffers that a call has while it is made. */
class Lease {
  #taken = [];

  constructor(gpu) {
    this.gpu = gpu;
  }

  #take(nbytes, usage) {
    const buffer = this.gpu.take(nbytes, usage);
    this.#taken.push(buffer);
    return buffer;
  }

  /** Memory for so many bytes, with anything in it. */
  room(nbytes) {
    const size = rounded(Math.max(nbytes, 4), 4);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    return { buffer: this.#take(size, usage), offset: 0, size };
  }

  /** These numbers on the device, in memory of whole units of bytes. */
  sent(numbers, unit = 4) {
    const range = this.room(rounded(numbers.byteLength, unit));
    this.gpu.device.queue.writeBuffer(range.buffer, 0, numbers);
    return range;
  }

  /** What a dispatch binds: the block for so many invocations with the arguments, and arrays. */
  bind(layout, count, ranges, words = []) {
    const block = new Uint32Array([count, 0, 0x7f800000, 0x7fc00000, ...words]);
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const buffer = this.#take(block.byteLength, usage);
    this.gpu.device.queue.writeBuffer(buffer, 0, block);
    const all = [{ buffer, offset: 0, size: block.byteLength }, ...ranges];
    const entries = all.map((resource, binding) => ({ binding, resource }));
    return this.gpu.device.createBindGroup({ layout, entries });
  }

  /** Give all of it back. */
  end() {
    this.#taken.forEach((buffer) => this.gpu.give(buffer));
    this.#taken = [];
  }
}

/** The range of a user's buffer, or of numbers that are sent. */
function placed(lease, values, what, pairs) {
  if (!(values instanceof GPUBuffer)) return lease.sent(sentAs(pairs, values, what));
  if (!(values.usage & GPUBufferUsage.STORAGE)) {
    throw new SymgradError(`${what} is a GPUBuffer without GPUBufferUsage.STORAGE`);
  }
  return { buffer: values, offset: 0, size: values.size };
}
