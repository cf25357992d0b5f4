/** What went wrong, and how to put it right. */
export class SymgradError extends Error {}

/** How to switch WebGPU on, where it is missing. */
export const WITHOUT_WEBGPU: string;

/** A GPUDevice with the limits of its adapter; throws where there is no WebGPU. */
export function requestDevice(options?: GPURequestAdapterOptions): Promise<GPUDevice>;

/**
 * All kernels. Calls may be made before others have ended: they are queued, in their order. They
 * reject with a SymgradError for arrays that do not fit, for what the GPU refuses, and once the
 * device is lost.
 */
interface Kernel {
  readonly name: string;
  /** The names of the numbers of a point, of the parameters, or of the arrays. */
  readonly inputs: string[];
  /** Give the kernel's own memory back. */
  destroy(): void;
}

/** Numbers as a kernel takes and gives them: in float32, or, in pairs of float32, as float64. */
type Numbers = Float32Array | Float64Array;

/** A kernel of points. */
interface PointKernel extends Kernel {
  /** The results at B points in a row (B * n numbers): for each of them B rows of numbers. */
  run(points: Numbers): Promise<Record<string, Numbers>>;
  /**
   * The same of points that are on the device, and stay there: it returns before they are computed.
   * Buffers of `into` take results by their names; the others are new, and the caller's.
   */
  runOnDevice(
    points: GPUBuffer, count: number, into?: Record<string, GPUBuffer>,
  ): Record<string, GPUBuffer>;
}

/** The results of a loss over data: numbers, and arrays for derivatives. */
type Sums = Record<string, number | Numbers>;

/** A kernel of a loss over data. */
interface RowKernel extends Kernel {
  /** The results for parameters, over N rows in a row (N * columns numbers). */
  run(parameters: Numbers, rows: Numbers | GPUBuffer): Promise<Sums>;
  /** The same with rows that stay on the device: copied there, or a buffer as it is. */
  bind(rows: Numbers | GPUBuffer, count?: number): BoundRows;
}

/** Rows that stay on the device. */
interface BoundRows {
  readonly count: number;
  run(parameters: Numbers): Promise<Sums>;
  destroy(): void;
}

/** Where minimisations from S starts have led. */
interface Ends {
  /** (S, n) in a row. */
  x: Numbers;
  /** The losses. */
  fun: Numbers;
  /** Steps that were made. */
  nit: Int32Array;
  /** Above 0 for a success, 0 where steps ran out, below it for what went wrong. */
  status: Int32Array;
  success: Uint8Array;
}

interface EndsOnDevice {
  x: GPUBuffer;
  fun: GPUBuffer;
  nit: GPUBuffer;
  status: GPUBuffer;
  success: GPUBuffer;
}

/** Rows of data: the same for all starts, or those of each start one after another. */
interface Rows {
  data?: Numbers | GPUBuffer;
}

/** A kernel that minimises a loss from many starts at once. */
interface Minimizer extends Kernel {
  minimize(starts: Numbers | GPUBuffer, options?: Rows): Promise<Ends>;
  /** The same with results that stay on the device, all as x is there; they are the caller's. */
  minimize(
    starts: Numbers | GPUBuffer, options: Rows & { stay: true },
  ): Promise<EndsOnDevice>;
  /** How far it is after every so many steps, until all are done. */
  minimizing(
    starts: Numbers | GPUBuffer, options?: Rows & { every?: number },
  ): AsyncGenerator<Ends>;
}

/** A kernel of arrays of known shapes, by their names. */
interface LaunchKernel extends Kernel {
  run(
    arrays: Record<string, Numbers | Int32Array | Uint32Array>,
  ): Promise<Record<string, Numbers | Int32Array | Uint32Array>>;
}

