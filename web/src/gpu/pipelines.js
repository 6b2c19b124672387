/** Compute pipelines: made from WGSL, with the time that this takes and the line of an error. */

/**
 * @typedef {object} Pipeline
 * @property {GPUComputePipeline} pipeline
 * @property {import('./bindings.js').Layout} layout
 * @property {string} label
 * @property {Promise<number>} made resolves with the microseconds until the browser had made it
 */

/** @typedef {{ label: string, wgsl: string, access: string }} Source what a pipeline is made of */

/**
 * @param {GPUDevice} device
 * @param {import('./errors.js').Errors} errors
 * @param {import('./bindings.js').Bindings} bindings
 * @param {string} label @param {string} wgsl @param {string} access one letter a buffer: r or w
 * @returns {Pipeline}
 */
export function createPipeline(device, errors, bindings, label, wgsl, access) {
  const begun = performance.now();
  for (const filter of /** @type {GPUErrorFilter[]} */ (['validation', 'internal'])) device.pushErrorScope(filter);
  const layout = bindings.layout(wgsl, access);
  const module = device.createShaderModule({ label, code: wgsl });
  const pipeline = device.createComputePipeline({ label, layout: layout.pipeline, compute: { module } });
  const scopes = [device.popErrorScope(), device.popErrorScope()];
  const made = Promise.all(scopes).then(async (found) => {
    const elapsed = performance.now() - begun;
    const failed = found.find((error) => error);
    if (failed) errors.add(await shaderError(module, label, failed));
    return elapsed * 1000;
  });
  errors.wait(made);
  return { pipeline, layout, label, made };
}

/**
 * The same, compiled beside the browser's other work and before anybody has asked for it. Rejects where it cannot be made.
 * @param {GPUDevice} device
 * @param {import('./bindings.js').Bindings} bindings
 * @param {Source} source
 * @returns {Promise<Pipeline>}
 */
export async function compilePipeline(device, bindings, { label, wgsl, access }) {
  const begun = performance.now();
  const layout = bindings.layout(wgsl, access);
  device.pushErrorScope('validation'); // an error is nobody's until Python asks for this text
  const module = device.createShaderModule({ label, code: wgsl });
  device.popErrorScope().catch(() => {});
  const pipeline = await device.createComputePipelineAsync({ label, layout: layout.pipeline, compute: { module } });
  return { pipeline, layout, label, made: Promise.resolve((performance.now() - begun) * 1000) };
}

/**
 * The first error of the compiler, which names a line, or else what the error scope caught.
 * @param {GPUShaderModule} module @param {string} label @param {GPUError} failed
 * @returns {Promise<import('./errors.js').ReportedError>}
 */
async function shaderError(module, label, failed) {
  const { messages } = await module.getCompilationInfo();
  const first = messages.find(({ type }) => type === 'error');
  return { kind: 'shader', label, message: first ? first.message : failed.message, line: first ? first.lineNum : 0 };
}

/**
 * All that the compiler says about a text. No pipeline is made, and nothing is reported as an error of the device.
 * @param {GPUDevice} device @param {string} wgsl
 * @returns {Promise<{ kind: string, message: string, line: number, column: number }[]>} line and column from 1 on, 0 for none
 */
export async function checkShader(device, wgsl) {
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ label: 'checked', code: wgsl });
  const scope = device.popErrorScope();
  const [failed, { messages }] = await Promise.all([scope, module.getCompilationInfo()]);
  const found = messages.map(({ type, message, lineNum, linePos }) => ({ kind: String(type), message, line: lineNum, column: linePos }));
  if (failed && !found.some(({ kind }) => kind === 'error')) found.push({ kind: 'error', message: failed.message, line: 0, column: 0 });
  return found;
}
