/** jax-js: `nn.dotProductAttention` under `jit`, on its WebGPU backend. */

import { blockUntilReady, defaultDevice, init, jit, nn, numpy as np } from '@jax-js/jax';
import { wallTime } from '../clocks.js';
import { numbers } from '../numbers.js';
import { pick } from './rows.js';

/**
 * @typedef {import('../types').Workload} Workload
 * @typedef {import('../types').PeerTask} PeerTask
 * @typedef {import('../types').PeerResult} PeerResult
 */

export const version = '0.1.25';
/** Every call's result is kept until the wait. */
const MOST_CALLS = 24;
/** It holds all scores in one buffer, which WebGPU limits. */
const MOST_SCORE_BYTES = 2 ** 31;

/** Whether this peer has the operation. @param {Workload} workload */
export function supports(workload) {
  const { kind, dtype, batch, heads, queries, keys } = workload;
  return kind === 'attention' && dtype === 'float32' && 4 * batch * heads * queries * keys <= MOST_SCORE_BYTES;
}

/** @param {PeerTask} task @returns {Promise<PeerResult>} */
export async function run({ workload, sets, rows, seconds }) {
  const { batch: B, heads: H, queries: S, keys: L, head_dim: D, causal } = workload;
  if (!(await init('webgpu')).includes('webgpu')) throw new Error('found no WebGPU');
  defaultDevice('webgpu');
  const make = (/** @type {number} */ seed, /** @type {number} */ length) =>
    np.array(numbers(seed, [B, H, length, D], 'BSHD')).reshape([B, length, H, D]);
  const inputs = Array.from({ length: sets }, (_, n) => [make(1 + 16 * n, S), make(2 + 16 * n, L), make(3 + 16 * n, L)]);
  const attention = jit((/** @type {any} */ q, /** @type {any} */ k, /** @type {any} */ v) =>
    nn.dotProductAttention(q, k, v, { isCausal: causal }),
  );
  /** @type {any[]} what was called and not yet waited for: work on disposed arrays might never be submitted */
  let made = [];
  const call = (/** @type {number} */ n) => {
    const [q, k, v] = inputs[n % sets];
    // A call uses its arrays up unless `ref` keeps them.
    made.push(attention(q.ref, k.ref, v.ref));
  };
  const finish = async () => {
    await blockUntilReady(made);
    for (const array of made) array.dispose();
    made = [];
  };
  try {
    call(0);
    const out = /** @type {Float32Array} */ (await made[0].ref.data());
    const wall = await wallTime(call, finish, seconds, MOST_CALLS);
    return { wall, got: pick(out, workload, rows) };
  } finally {
    for (const array of [...made, ...inputs.flat()]) array.dispose();
    attention.dispose();
  }
}
