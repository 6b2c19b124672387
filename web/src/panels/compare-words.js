/** What the comparison of two heads says: plain strings and numbers, no elements. */

import { formatCount, formatToken, formatWeight } from '../format.js';

/**
 * @typedef {import('../store.js').Compare} Compare
 * @typedef {import('../types').CompareFigures} CompareFigures
 */

/** The dtypes of caches, and their names. */
export const CACHES = /** @type {[string, string][]} */ ([
  ['float32', 'float32'],
  ['float16', 'float16'],
  ['bfloat16', 'bfloat16'],
  ['turboquant4', 'TurboQuant, 4 bits'],
  ['turboquant3', 'TurboQuant, 3 bits'],
  ['turboquant2', 'TurboQuant, 2 bits'],
  ['turboquant1', 'TurboQuant, 1 bit'],
]);

/** What a choice of something to compare with begins with. */
const EXAMPLE = 'The dog chased the cat because it was hungry, and the cat ran up a tree.';

/** The maps' names. @param {Compare} compare @param {{ layer: number, head: number }} focus */
export function namesOf(compare, { layer, head }) {
  const focus = `layer ${layer}, head ${head}`;
  switch (compare.with) {
    case 'head':
      return { a: `A: ${focus}`, b: `B: layer ${compare.layer}, head ${compare.head}` };
    case 'unedited':
      return { a: `A: ${focus}, with your functions`, b: 'B: the same head without them' };
    case 'cache':
      return { a: `A: ${focus}, exact keys`, b: `B: the same head over ${nameOfCache(compare.dtype)}` };
    default:
      return { a: `A: ${focus}`, b: 'B: the same head, another text' };
  }
}

/** @param {string} dtype */
function nameOfCache(dtype) {
  const name = CACHES.find(([each]) => each === dtype)?.[1] ?? dtype;
  return dtype.startsWith('turboquant') ? name : `a ${name} cache`;
}

/**
 * What a visitor begins with who chooses a kind of comparison.
 * @param {Compare['with']} kind @param {{ layer: number, head: number }} focus
 * @param {{ layers: number, heads: number }} source @returns {Compare}
 */
export function beginning(kind, { layer, head }, { layers, heads }) {
  if (kind === 'unedited') return { with: 'unedited' };
  if (kind === 'cache') return { with: 'cache', dtype: 'turboquant3' };
  if (kind === 'text') return { with: 'text', text: EXAMPLE };
  // The neighbour, since a head does not differ from itself.
  return heads > 1 ? { with: 'head', layer, head: (head + 1) % heads } : { with: 'head', layer: (layer + 1) % layers, head };
}

/** The smallest of 1, 0.5, 0.2, 0.1, 0.05 … that is not below a number from 0 to 1; 1 for 0. @param {number} largest */
export function roundSpan(largest) {
  const size = Math.abs(largest);
  if (!(size > 0)) return 1;
  const ten = 10 ** Math.ceil(Math.log10(size) - 1e-9);
  const digit = [0.1, 0.2, 0.5, 1].find((each) => each * ten >= size * (1 - 1e-6)) ?? 1;
  return Number((digit * ten).toPrecision(1));
}

/** The figures for screen readers. @param {CompareFigures} figures @param {string[]} tokens */
export function describeFigures({ largest, variation, shannon }, tokens) {
  if (!largest || variation === undefined || shannon === undefined) return '';
  const where = `${formatToken(tokens[largest.query])} to ${formatToken(tokens[largest.key])}`;
  return (
    `The maps differ most from ${where}: A ${formatWeight(largest.a)}, B ${formatWeight(largest.b)}. ` +
    `Mean total variation distance ${variation.toFixed(3)}, mean Jensen–Shannon divergence ${shannon.toFixed(3)} bits.`
  );
}

/** What the two distances mean. @param {CompareFigures} figures */
export function defineFigures({ rows = 0, step }) {
  const which = step > 1 ? `${formatCount(rows)} rows, every ${formatCount(step)}th` : `${formatCount(rows)} rows`;
  return (
    'Total variation distance: half the sum of |a − b| over the keys of a row, the share of its attention that lies elsewhere. ' +
    'Jensen–Shannon divergence: how much of a bit one key tells about which map it was drawn from. ' +
    `Both are means over ${which}: 0 for equal rows, 1 for rows that share no key.`
  );
}
