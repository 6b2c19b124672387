/** What the Write panel says and how it computes what it draws: plain functions. */

import { formatBytes, formatCount } from '../format.js';

/**
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').WrittenToken} WrittenToken
 */

export const MODEL_BYTES = 98_362_432;
export const CONTEXT = 2048; // tokens that the model can read at once
export const SHORT = 512; // tokens of a cache that takes a quarter of the memory

/** Tokens of a ring. */
export const SIZES = [64, 128, 256, 512, 1024];

export const DTYPES = /** @type {[value: string, label: string][]} */ ([
  ['float32', 'float32'],
  ['float16', 'float16'],
  ['turboquant4', 'TurboQuant 4 bits'],
  ['turboquant3', 'TurboQuant 3 bits'],
  ['turboquant2', 'TurboQuant 2 bits'],
]);

/** @param {number} probability */
export function formatPercent(probability) {
  const percent = 100 * probability;
  if (percent > 0 && percent < 0.01) return '< 0.01 %';
  return `${percent.toFixed(percent < 1 ? 2 : 1)} %`;
}

/** @param {number} rate tokens a second */
export function formatRate(rate) {
  return `${rate < 10 ? rate.toFixed(1) : formatCount(Math.round(rate))} tokens/s`;
}

/** @param {number} seconds */
export function formatSeconds(seconds) {
  return seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;
}

/** A token as the text shows it: line ends can be seen, and an incomplete character has a place. @param {string} text */
export function tokenText(text) {
  return text === '' ? '◌' : text.replace(/\n/gu, '⏎\n');
}

/** How unexpected a token was, from 0 to 1. @param {WrittenToken} token */
export function surprise({ logProbability }) {
  return logProbability == null ? 0 : 1 - Math.exp(logProbability);
}

/** @param {{ cache: string, context: number, ring: boolean, sink_tokens: number }} choice */
export function nameCache({ cache, context, ring, sink_tokens: kept }) {
  const dtype = DTYPES.find(([value]) => value === cache)?.[1] ?? cache;
  if (!ring) return dtype;
  return `${dtype}, ring of ${formatCount(context)}, ${kept ? `first ${kept} kept` : 'none kept'}`;
}

/** The caches that are compared on a text: all dtypes, and rings where the text is long enough. @param {number} length @param {CacheChoice} choice */
export function comparedCaches(length, choice) {
  const full = DTYPES.map(([cache]) => ({ cache, context: CONTEXT, ring: false, sink_tokens: 0 }));
  const size = choice.ring ? choice.context : ringFor(length);
  if (size >= length || size < 16) return length > CONTEXT ? [] : full;
  const rings = [0, 4].map((kept) => ({ cache: 'float32', context: size, ring: true, sink_tokens: kept }));
  return [...(length > CONTEXT ? [] : full), ...rings];
}

/** A power of two that a text goes through at least twice. @param {number} length */
function ringFor(length) {
  return 2 ** Math.floor(Math.log2(Math.max(1, length / 2)));
}

/** Why nothing is written any more; empty where something can be. @param {string} finished @param {import('../types').CacheState} cache */
export function describeEnd(finished, { capacity, ring }) {
  if (finished === 'end') return 'The model has ended its text. Go back to a token to take another way.';
  if (finished === 'context' && ring) return 'The text has reached the length up to which its maps are kept. Go back, or begin anew.';
  if (finished === 'context') {
    return `The cache is full: it has room for ${formatCount(capacity)} tokens. Go back, or choose a ring, which goes on.`;
  }
  return '';
}

/** The numbers of what was written. @param {import('../types').Written} written */
export function describeWritten({ length, prompt, timing, bytes }) {
  const parts = [`${formatCount(prompt)} tokens read, ${formatCount(length - prompt)} written`];
  if (timing.rate) parts.push(formatRate(timing.rate));
  if (timing.firstToken != null) parts.push(`first token after ${formatSeconds(timing.firstToken)}`);
  parts.push(`cache ${formatBytes(bytes)}`);
  return parts.join(' · ');
}

/** @param {{ seconds: number, bytes: number }} estimate */
export function describeEstimate({ seconds, bytes }) {
  return (
    'Writing needs WebGPU, which this browser does not offer. ' +
    `numpy would take about ${formatSeconds(seconds)} for every token here, by a measurement just now, and ${formatBytes(bytes)} of memory for the weights alone. ` +
    'What works without WebGPU: sentences and synthetic input, with all their maps, the score editor, decoding and the console.'
  );
}

/**
 * Which buttons can be pressed, and what the first one says.
 * @param {{ able: boolean, loaded: boolean, busy: string, length: number, prompt: number, finished: string }} state
 *   `able` where there is WebGPU, `length` of the text and `prompt` in tokens
 */
export function buttonStates({ able, loaded, busy, length, prompt, finished }) {
  const writing = busy === 'writing';
  const idle = able && !busy;
  return {
    label: writing ? 'Stop' : loaded ? 'Generate' : `Load SmolLM2 (${formatBytes(MODEL_BYTES)}) and generate`,
    does: writing ? 'stop' : 'generate',
    generate: able && busy !== 'loading',
    goOn: idle && length > 0 && !finished,
    step: idle && !finished,
    back: idle && length > Math.max(1, prompt),
  };
}

/** @param {Exclude<import('../types').Over, 'rollout'>} over @param {number} layer @param {number} head */
export function describeLooking(over, layer, head) {
  const what = { head: `Layer ${layer}, head ${head}`, layer: `The mean of layer ${layer}`, all: 'The mean of all heads' };
  return `${what[over]}: what the token under the pointer attends to.`;
}

/** That there is no room for a buffer, as Python words it; '' for all other errors. @param {string} error */
function describeLack(error) {
  const [, bytes] = /\bof ([\d,]+) bytes: /u.exec(error) ?? [];
  return bytes ? `the GPU has no room for another ${formatBytes(Number(bytes.replaceAll(',', '')))}. Choose a smaller cache below, shorter or with fewer bits, or close other pages that use the GPU` : '';
}

/** Why nothing was written, and what to do. @param {string} error @param {boolean} any whether there is a text */
export function describeError(error, any) {
  const lack = describeLack(error);
  return lack ? `${lack[0].toUpperCase()}${lack.slice(1)}; then press ${any ? '“Go on”: the text is kept' : '“Generate” again'}.` : error;
}

/** Why the model could not be loaded, and what to do. @param {string} error as web/src/assets.js or Python words it */
export function describeFailure(error) {
  const [, status] = /the server answered (\d+)/u.exec(error) ?? [];
  const [, loaded, total] = /(?:broke off|ended) after (\d+) of (\d+) bytes/u.exec(error) ?? [];
  const again = 'press the button to try again.';
  const lack = describeLack(error);
  if (lack) return `SmolLM2 could not be loaded: ${lack}; then ${again}`;
  if (status === '404' || status === '410') {
    return `SmolLM2 could not be loaded: this site does not have the model’s file where it should be (${status}). Reload the page, as the site may have been changed; then ${again}`;
  }
  if (status) return `SmolLM2 could not be loaded: the site’s server answered ${status}. Wait a moment, then ${again}`;
  if (total) {
    const far = `${formatBytes(Number(loaded))} of ${formatBytes(Number(total))}`;
    return `SmolLM2 could not be loaded: the download ended early, after ${far}. Check the connection, then ${again}`;
  }
  if (error.includes('no connection to')) return `SmolLM2 could not be loaded: there is no connection to this site. Check the connection, then ${again}`;
  if (/SHA-256|more than the expected/u.test(error)) {
    return `SmolLM2 could not be loaded: what arrived is not the file that this page expects, so it was not used. Reload the page, as the site may have been changed; then ${again}`;
  }
  return `SmolLM2 could not be loaded: ${error.replace(/[^.!?]$/u, '$&.')} Press the button to try again.`;
}

/** Which cell an arrow key leads to, or null. @param {string} key @param {number} layer @param {number} head @param {{ layers: number, heads: number }} shape */
export function moveInGrid(key, layer, head, { layers, heads }) {
  const to = /** @type {Record<string, [number, number]>} */ ({
    ArrowLeft: [layer - 1, head],
    ArrowRight: [layer + 1, head],
    ArrowUp: [layer, head - 1],
    ArrowDown: [layer, head + 1],
    Home: [0, head],
    End: [layers - 1, head],
  })[key];
  return to && to[0] >= 0 && to[0] < layers && to[1] >= 0 && to[1] < heads ? to : null;
}

/** The heads to switch off, from what there is and what is chosen. @param {'head' | 'layer' | 'others' | 'none'} which @param {Set<string>} off "layer/head" @param {number} layer @param {number} head @param {{ layers: number, heads: number }} shape */
export function headsAfter(which, off, layer, head, { layers, heads }) {
  if (which === 'none') return new Set();
  const after = new Set(off);
  const all = Array.from({ length: heads }, (_, i) => `${layer}/${i}`);
  if (which === 'head') toggle(after, [`${layer}/${head}`]);
  else if (which === 'layer') toggle(after, all);
  else {
    for (let l = 0; l < layers; l++) for (let i = 0; i < heads; i++) after.add(`${l}/${i}`);
    after.delete(`${layer}/${head}`);
  }
  return after;
}

/** On again where all are off, else off. @param {Set<string>} off @param {string[]} names */
function toggle(off, names) {
  const on = names.every((name) => off.has(name));
  for (const name of names) on ? off.delete(name) : off.add(name);
}

// the chart of the KL divergence

export const KL_RANGE = /** @type {const} */ ([1e-6, 10]);

/** The mean of each value and its neighbours, so that a line can be read. @param {ArrayLike<number>} values @param {number} reach on each side */
export function smooth(values, reach) {
  return Array.from({ length: values.length }, (_, i) => {
    const [from, to] = [Math.max(0, i - reach), Math.min(values.length, i + reach + 1)];
    let sum = 0;
    for (let j = from; j < to; j++) sum += values[j];
    return sum / (to - from);
  });
}

/** Where a divergence is on a logarithmic axis, from 0 at its lower end to 1. @param {number} kl */
export function klPosition(kl) {
  const [low, high] = KL_RANGE;
  return Math.log(Math.min(Math.max(kl, low), high) / low) / Math.log(high / low);
}

/** A line as an SVG path. @param {ArrayLike<number>} kl of each token @param {number} width @param {number} height */
export function klPath(kl, width, height) {
  const last = Math.max(1, kl.length - 1);
  return smooth(kl, Math.round(kl.length / 60))
    .map((value, i) => `${i ? 'L' : 'M'}${((width * i) / last).toFixed(1)} ${(height * (1 - klPosition(value))).toFixed(1)}`)
    .join('');
}
