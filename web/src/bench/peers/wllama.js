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
const LONG_MS = 3000;

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
  /** @type {string[]} */
  const said = [];
  const hear = (/** @type {unknown[]} */ ...words) => void said.push(words.join(' '));
  const logger = { debug: hear, log: hear, warn: hear, error: hear };
  const library = new Wllama({ default: new URL(wasm, import.meta.url).href }, { logger });
  try {
    const begun = performance.now();
    await library.loadModel([new Blob([bytes])], {
      n_ctx: task.context,
      n_parallel: 1,
      n_gpu_layers: gpu ? 99999 : 0,
    });
    const loaded = performance.now() - begun;
    if (gpu && !said.some((line) => /WebGPU.* buffer size/i.test(line))) {
      throw new Error('it leaves this adapter’s WebGPU alone and computes on the CPU (it needs shader-f16)');
    }
    said.length = 0;
    const { text } = await complete(library, task.checked, false);
    await complete(library, { ...task.decode, count: 1 }, true);
    const decode = await times(task.repeats, () => complete(library, task.decode, true));
    const prefill = await times(task.repeats, () => complete(library, task.prefill, false));
    const rate = median(decode.map(({ written, ms }) => (1000 * written) / ms));
    const inside = median(decode.map((one) => one.rate));
    return {
      text,
      values: {
        'model-load': loaded / 1000,
        'model-decode-f16': rate,
        'model-prefill': median(prefill.map(({ ms }) => ms)),
      },
      notes: [
        gpu ? 'all layers on WebGPU' : 'on the CPU',
        library.isMultithread() ? `${library.getNumThreads()} threads` : 'one thread, as the page is not cross-origin isolated',
        `prompts of ${decode[0].read} and ${prefill[0].read} tokens`,
        `by its own clock ${inside.toFixed(1)} tokens/s`,
      ],
    };
  } finally {
    await library.exit();
  }
}

/**
 * The first run only warms up, unless it is so long that there is no time for others.
 * @template {{ ms: number }} T @param {number} count @param {() => Promise<T>} run
 */
async function times(count, run) {
  const first = await run();
  if (first.ms > LONG_MS) return [first];
  const found = [];
  for (let n = 0; n < count; n++) found.push(await run());
  return found;
}

/**
 * Greedy, past end tokens; `kept` says whether the prompt's keys and values may stay from the last time.
 * @param {Wllama} library @param {{ prompt: string, count: number }} asked @param {boolean} kept
 */
async function complete(library, { prompt, count }, kept) {
  const begun = performance.now();
  const options = { prompt, max_tokens: count, temperature: 0, ignore_eos: true, cache_prompt: kept, stream: false };
  const made = await library.createCompletion(/** @type {any} */ (options));
  const ms = performance.now() - begun;
  const { prompt_tokens, completion_tokens } = made.usage;
  const rate = made.timings?.predicted_per_second ?? 0;
  return { text: /** @type {string} */ (made.choices[0].text), read: prompt_tokens, written: completion_tokens, ms, rate };
}
