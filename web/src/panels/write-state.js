/** All that the Write panel has, as one packed text: its fields, and the text that the model has written. */

import { PackedTextError, packText, unpackText } from '../packed-text.js';
import { CONTEXT, DTYPES, SHORT, SIZES } from './write-words.js';

/**
 * @typedef {object} WriteState
 * @property {string} prompt as it stands in its field
 * @property {boolean} chat
 * @property {(number | null)[]} numbers the fields' numbers, null for an empty field: new tokens, temperature, top-k, top-p, seed
 * @property {import('../types').CacheChoice} cache
 * @property {number[]} off the heads that are switched off, as layer × heads of a layer + head
 * @property {'head' | 'layer' | 'all'} over what the text is coloured by
 * @property {number[]} ids of the text's tokens
 * @property {string[]} texts of the tokens, so that they can be shown before the model is there
 * @property {number} given how many of them were the prompt's
 * @property {'' | 'end' | 'context'} finished
 */

/** The model's layers, and the heads of each. */
export const SHAPE = { layers: 30, heads: 9 };
const VOCABULARY = 49_152;
const MAX_PROMPT = 100_000; // characters
const MAX_TOKEN = 1000; // characters
const NUMBERS = 5;

/** @param {WriteState} state @returns {Promise<string>} */
export const packState = (state) => packText(JSON.stringify(state));

/**
 * @param {string} packed
 * @returns {Promise<WriteState>} throws PackedTextError for everything that the panel could not have packed
 */
export async function unpackState(packed) {
  return checkState(await unpackText(packed));
}

/** @param {string} text JSON @returns {WriteState} */
export function checkState(text) {
  /** @type {any} */
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    given = null;
  }
  if (!isState(given)) throw new PackedTextError('This is nothing that the Write panel has packed.');
  const { prompt, chat, numbers, cache, off, over, ids, texts, given: count, finished } = given;
  return { prompt, chat, numbers, cache, off, over, ids, texts, given: count, finished };
}

/** @param {any} state */
function isState(state) {
  if (!state || typeof state !== 'object') return false;
  const { prompt, chat, numbers, cache, off, over, ids, texts, given, finished } = state;
  return (
    isText(prompt, MAX_PROMPT) &&
    typeof chat === 'boolean' &&
    isList(numbers, NUMBERS, (one) => one === null || Number.isFinite(one)) &&
    numbers.length === NUMBERS &&
    isCache(cache) &&
    isList(off, SHAPE.layers * SHAPE.heads, (one) => isIndex(one, SHAPE.layers * SHAPE.heads)) &&
    ['head', 'layer', 'all'].includes(over) &&
    isList(ids, CONTEXT, (one) => isIndex(one, VOCABULARY)) &&
    isList(texts, CONTEXT, (one) => isText(one, MAX_TOKEN)) &&
    texts.length === ids.length &&
    isIndex(given, ids.length + 1) &&
    (given > 0 || ids.length === 0) &&
    ['', 'end', 'context'].includes(finished)
  );
}

/** @param {any} choice */
function isCache(choice) {
  if (!choice || typeof choice !== 'object') return false;
  const { cache, context, ring, sink_tokens: kept } = choice;
  if (!DTYPES.some(([name]) => name === cache)) return false;
  return ring === true ? SIZES.includes(context) && (kept === 0 || kept === 4) : ring === false && [CONTEXT, SHORT].includes(context) && kept === 0;
}

/** @param {any} list @param {number} most @param {(one: any) => boolean} check */
function isList(list, most, check) {
  return Array.isArray(list) && list.length <= most && list.every(check);
}

/** @param {any} text @param {number} most */
function isText(text, most) {
  return typeof text === 'string' && text.length <= most;
}

/** @param {any} number @param {number} end */
function isIndex(number, end) {
  return Number.isInteger(number) && number >= 0 && number < end;
}
