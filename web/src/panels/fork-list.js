/** The visitor's own kernels as a list, in an address, and what is said about them: no elements, no calls. */

import { PackedTextError, packText, unpackText } from '../packed-text.js';

/**
 * @typedef {import('../store.js').Fork} Fork
 * @typedef {import('../types').WgslMessage} WgslMessage
 */

export const MAX_FORKS = 12;
const MAX_NAME = 40;

/** A name that no other row has. @param {string} wanted @param {string[]} taken */
export function freeName(wanted, taken) {
  const name = wanted.trim().replace(/\s+/gu, ' ').slice(0, MAX_NAME) || 'yours';
  if (!taken.includes(name)) return name;
  for (let number = 2; ; number++) {
    if (!taken.includes(`${name} ${number}`)) return `${name} ${number}`;
  }
}

/** The forks with one of them changed. @param {readonly Fork[]} forks @param {string} name @param {Partial<Fork>} change */
export function changed(forks, name, change) {
  return forks.map((fork) => (fork.name === name ? { ...fork, ...change } : fork));
}

/** Whether a text is the one that was measured; lines may end differently. @param {string} text @param {string} measured */
export function isSameText(text, measured) {
  const plain = (/** @type {string} */ one) => one.replace(/\r\n?/gu, '\n').trimEnd();
  return plain(text) === plain(measured);
}

/** What the compiler found, in a few words. @param {WgslMessage[]} messages */
export function summarize(messages) {
  const count = (/** @type {string} */ kind) => messages.filter((one) => one.kind === kind).length;
  const [errors, warnings] = [count('error'), count('warning')];
  const plural = (/** @type {number} */ n, /** @type {string} */ word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  const parts = [errors > 0 && plural(errors, 'error'), warnings > 0 && plural(warnings, 'warning')].filter(Boolean);
  return parts.length ? `The WGSL compiler reports ${parts.join(' and ')}.` : 'The WGSL compiler has no objections.';
}

/** What became of a run that failed. @param {{ name: string, message: string }} error @param {string} short its last line */
export function describeFailure({ name }, short) {
  const kept = 'Your text is kept, and is not run again by itself.';
  if (name === 'DeviceLostError') return `The GPU was lost while this kernel ran, perhaps because it never ends. ${kept}`;
  if (name === 'StoppedError') return `Python was stopped while this kernel ran. ${kept}`;
  return `It could not be run: ${short}`;
}

/** Forks as they stand in an address. @param {readonly Fork[]} forks @returns {Promise<string>} '' for none */
export async function packForks(forks) {
  return forks.length ? packText(JSON.stringify(forks.map(({ name, of, text }) => [name, of, text]))) : '';
}

/**
 * Forks from an address, which may come from anyone: they are shown, and run only when the visitor says so.
 * @param {string} packed
 * @returns {Promise<Fork[]>}
 */
export async function unpackForks(packed) {
  if (!packed) return [];
  const text = await unpackText(packed);
  /** @type {unknown} */
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = null;
  }
  const isFork = (/** @type {unknown} */ one) =>
    Array.isArray(one) && one.length === 3 && one.every((part) => typeof part === 'string') && one[1].length <= MAX_NAME;
  if (!Array.isArray(found) || found.length > MAX_FORKS || !found.every(isFork)) throw new PackedTextError('These are no kernels.');
  /** @type {Fork[]} */
  const forks = [];
  for (const [name, of, wgsl] of found) forks.push({ name: freeName(name, [...forks.map((one) => one.name), of]), of, text: wgsl });
  return forks;
}
