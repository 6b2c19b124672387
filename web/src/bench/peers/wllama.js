/**
 * wllama: llama.cpp in WebAssembly, with the same file of the model. It makes a worker of its own; on WebGPU all layers
 * are on the GPU.
 */

import { Wllama } from '@wllama/wllama';
import wasm from '@wllama/wllama/esm/wasm/wllama.wasm?url';
import { createAssets } from '../../assets.js';
import { median } from '../clocks.js';

/**
 * @typedef {import('../types').ModelPeerTask} ModelPeerTask
 * @typedef {import('../types').ModelPeerResult} ModelPeerResult
 */

export const version = '3.8.1';

/** It computes models only. */
export function supports() {
  return false;
}

/** @returns {Promise<never>} */
export async function run() {
  throw new Error('has no attention by itself');
}

/** @param {ModelPeerTask} task @param {string} base the site's folder @param {boolean} gpu @returns {Promise<ModelPeerResult>} */
export async function runModel(task, base, gpu) {
  const bytes = await createAssets(base).fetch('smollm2/model.gguf');
  const library = new Wllama({ default: new URL(wasm, import.meta.url).href }, { suppressNativeLog: true });
  try {
    const begun = performance.now();
    await library.loadModel([new Blob([bytes])], {
      n_ctx: task.context,
      n_parallel: 1,
      n_gpu_layers: gpu ? 99999 : 0,
    });
    const loaded = performance.now() - begun;
    const { text } = await complete(library, task.checked.ids, task.checked.count, false);
    const decode = await times(task.repeats, () => complete(library, task.decode.ids, task.decode.count, true));
    const prefill = await times(task.repeats, () => complete(library, task.prefill.ids, 1, false));
    const written = median(decode.map(({ tokens, ms }) => (1000 * tokens) / ms));
    const inside = median(decode.map(({ rate }) => rate));
    return {
      text,
      values: {
        'model-load': loaded / 1000,
        'model-decode-f16': written,
        'model-prefill': median(prefill.map(({ ms }) => ms)),
      },
      notes: [
        gpu ? 'all layers on WebGPU' : 'on the CPU',
        library.isMultithread() ? `${library.getNumThreads()} threads` : 'one thread, as the page is not cross-origin isolated',
        `by its own clock ${inside.toFixed(1)} tokens/s`,
      ],
    };
  } finally {
    await library.exit();
  }
}

/** @template T @param {number} count @param {() => Promise<T>} run */
async function times(count, run) {
  await run();
  const found = [];
  for (let n = 0; n < count; n++) found.push(await run());
  return found;
}

/**
 * Greedy, past end tokens; `kept` says whether the prompt's keys and values may stay from the last time.
 * @param {Wllama} library @param {number[]} ids @param {number} count @param {boolean} kept
 */
async function complete(library, ids, count, kept) {
  const begun = performance.now();
  const options = { prompt: ids, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: kept, stream: false };
  const made = await library.createCompletion(/** @type {any} */ (options));
  const ms = performance.now() - begun;
  const rate = made.timings?.predicted_per_second ?? 0;
  return { text: /** @type {string} */ (made.choices[0].text), tokens: made.usage.completion_tokens, ms, rate };
}
