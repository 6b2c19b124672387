/**
 * onnxruntime-web's attention on its WebGPU provider.
 *
 * Inputs and outputs stay on the GPU (IO binding): what is timed is `session.run` on bound buffers, as one layer of
 * a model sees it, and the wait for the queue. Uploads and read-backs are no part of it, for us neither.
 */

import * as ort from 'onnxruntime-web/webgpu';
import { fromHalf, numbers, toHalf } from '../numbers.js';
import { wallTime } from '../clocks.js';
import { pick } from './rows.js';
import { FLOAT, FLOAT16, groupQueryAttention, multiHeadAttention } from './onnx-model.js';

/**
 * @typedef {import('../types').Workload} Workload
 * @typedef {import('../types').PeerTask} PeerTask
 * @typedef {import('../types').PeerResult} PeerResult
 */

export const version = ort.env.versions.web ?? '';

const FEATURES = /** @type {GPUFeatureName[]} */ ([
  'shader-f16',
  'timestamp-query',
  'subgroups',
  'chromium-experimental-subgroup-matrix',
]);
const LIMITS = /** @type {const} */ ([
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupSizeZ',
  'maxComputeWorkgroupsPerDimension',
]);

/** @type {Promise<GPUDevice> | undefined} */
let device;

/**
 * A device with everything that the library requests when it makes one itself; its own would be destroyed with each session.
 * Its prefill kernel is wrong on subgroups narrower than 8 (SwiftShader's are of 4); without the feature it takes
 * another, right way.
 */
async function makeDevice() {
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('found no WebGPU adapter');
  const narrow = adapter.info.subgroupMinSize < 8;
  return adapter.requestDevice({
    requiredFeatures: FEATURES.filter((name) => adapter.features.has(name) && !(narrow && name.includes('subgroup'))),
    requiredLimits: Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]])),
  });
}

/** Whether this peer has the operation. @param {Workload} workload */
export function supports(workload) {
  if (workload.kind === 'attention') return workload.variant !== 'matrix' || workload.dtype === 'float16';
  return workload.kind === 'decode' && workload.dtype.startsWith('float');
}

/** @param {PeerTask} task @returns {Promise<PeerResult>} */
export async function run({ workload, sets, rows, seconds, f16 }) {
  const half = workload.dtype === 'float16';
  if (half && !f16) throw new Error('needs shader-f16, which this adapter does not offer');
  ort.env.logLevel = 'error';
  const type = half ? FLOAT16 : FLOAT;
  const bytes = workload.kind === 'decode' ? groupQueryAttention(workload, type) : multiHeadAttention(workload, type);
  const gpu = await (device ??= makeDevice());
  const session = await ort.InferenceSession.create(bytes, { executionProviders: [{ name: 'webgpu', device: gpu }] });
  const bound = Array.from({ length: sets }, (_, n) => bind(gpu, workload, n, half));
  try {
    const call = (/** @type {number} */ n) => {
      const { feeds, fetches } = bound[n % sets];
      return session.run(feeds, fetches);
    };
    await call(0);
    const out = await readBack(gpu, bound[0].output, half);
    const wall = await wallTime(call, () => gpu.queue.onSubmittedWorkDone(), seconds);
    return { wall, got: pick(out, workload, rows) };
  } finally {
    await session.release();
    for (const { buffers } of bound) for (const buffer of buffers) buffer.destroy();
  }
}

/** Makes one set of inputs and outputs on the GPU. @param {GPUDevice} gpu @param {Workload} workload @param {number} set @param {boolean} half */
function bind(gpu, workload, set, half) {
  const { batch: B, heads: H, kv_heads: K, queries: S, keys: L, head_dim: D } = workload;
  /** @type {GPUBuffer[]} */
  const buffers = [];
  const seed = (/** @type {number} */ n) => n + 16 * set;
  const tensor = (/** @type {number[]} */ dims, /** @type {Float32Array | null} */ values) => {
    const size = dims.reduce((a, b) => a * b, 1) * (half ? 2 : 4);
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    const buffer = gpu.createBuffer({ size: Math.max(16, Math.ceil(size / 16) * 16), usage });
    buffers.push(buffer);
    if (values) gpu.queue.writeBuffer(buffer, 0, half ? toHalf(values) : /** @type {any} */ (values));
    return ort.Tensor.fromGpuBuffer(buffer, { dataType: half ? 'float16' : 'float32', dims });
  };
  /** @type {Record<string, ort.Tensor>} */
  const feeds = {};
  /** @type {Record<string, ort.Tensor>} */
  const fetches = {};
  if (workload.kind === 'decode') {
    const cache = [B, K, L, D];
    feeds.query = tensor([B, 1, H * D], numbers(seed(1), [B, H, 1, D], 'BSHD'));
    feeds.key = tensor([B, 1, K * D], numbers(seed(2), [B, K, L, D], 'BSHD', [L - 1, L]));
    feeds.value = tensor([B, 1, K * D], numbers(seed(3), [B, K, L, D], 'BSHD', [L - 1, L]));
    feeds.past_key = tensor(cache, numbers(seed(2), [B, K, L, D], 'BHSD'));
    feeds.past_value = tensor(cache, numbers(seed(3), [B, K, L, D], 'BHSD'));
    feeds.seqlens_k = new ort.Tensor('int32', new Int32Array(B).fill(L - 1), [B]);
    feeds.total_sequence_length = new ort.Tensor('int32', [L], [1]);
    // The same buffers again: the cache grows in place instead of being copied.
    fetches.present_key = feeds.past_key;
    fetches.present_value = feeds.past_value;
    fetches.output = tensor([B, 1, H * D], null);
  } else {
    feeds.query = tensor([B, S, H * D], numbers(seed(1), [B, H, S, D], 'BSHD'));
    feeds.key = tensor([B, L, H * D], numbers(seed(2), [B, H, L, D], 'BSHD'));
    feeds.value = tensor([B, L, H * D], numbers(seed(3), [B, H, L, D], 'BSHD'));
    fetches.output = tensor([B, S, H * D], null);
  }
  return { feeds, fetches, buffers, output: buffers[buffers.length - 1] };
}

/** @param {GPUDevice} gpu @param {GPUBuffer} buffer @param {boolean} half */
async function readBack(gpu, buffer, half) {
  const staging = gpu.createBuffer({ size: buffer.size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  const encoder = gpu.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, staging, 0, buffer.size);
  gpu.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const bytes = staging.getMappedRange().slice(0);
  staging.destroy();
  return half ? fromHalf(new Uint16Array(bytes)) : new Float32Array(bytes);
}
