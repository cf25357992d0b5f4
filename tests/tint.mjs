// Compiles WGSL with Tint, as Chrome does, on Dawn's null back end, which needs no driver.
//
//   node tint.mjs NODE_MODULES SOURCES
//
// SOURCES is a JSON file with a list of WGSL texts. One line of JSON goes to stdout for each of
// them as soon as it is known: null, or what Dawn says against it. Each source becomes a module
// and a compute pipeline with entry point "main" under an explicit layout, with WebGPU's default
// limits and no optional features.

import { readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, sources] = process.argv.slice(2);
const { create, globals } = await import(
  pathToFileURL(join(modules, 'webgpu', 'index.js')).href
);
Object.assign(globalThis, globals);

/** The bindings of group 0, as the declarations in the source say. */
function entries(code) {
  const declaration =
    /@group\(\s*0[iu]?\s*\)\s*@binding\(\s*(\d+)[iu]?\s*\)\s*var\s*<\s*(\w+)\s*(?:,\s*(\w+)\s*)?>/g;
  return Array.from(code.matchAll(declaration), ([, binding, space, access]) => ({
    binding: Number(binding),
    visibility: GPUShaderStage.COMPUTE,
    buffer: { type: bufferType(space, access) },
  }));
}

function bufferType(space, access) {
  if (space === 'uniform') return 'uniform';
  return access === 'read_write' ? 'storage' : 'read-only-storage';
}

/** What is wrong with the module itself: Tint's messages with their places. */
async function faults(module) {
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter((m) => m.type === 'error');
  return errors.map((m) => `${m.lineNum}:${m.linePos} ${m.message}`).join('\n');
}

async function check(device, code) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  const layout = device.createBindGroupLayout({ entries: entries(code) });
  device.createComputePipeline({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: 'main' },
  });
  const error = await device.popErrorScope();
  return (await faults(module)) || (error ? error.message : null);
}

const gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
const device = await adapter.requestDevice();
for (const code of JSON.parse(readFileSync(sources, 'utf8'))) {
  writeSync(1, `${JSON.stringify(await check(device, code))}\n`);
}
process.exit(0); // Dawn's own threads would keep node alive
