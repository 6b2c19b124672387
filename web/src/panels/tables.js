/** The page's tables as data, for copying and saving. Layers, heads and positions count from 0. */

import { formatError, formatSigned, formatWeight } from '../format.js';
import { PARTS, totalOf } from './measured.js';

/**
 * @typedef {import('../table-text.js').Table} Table
 * @typedef {import('../table-text.js').Column} Column
 * @typedef {import('../table-text.js').Cell} Cell
 */

/** @type {Column[]} */
const LINK = [{ label: 'Query position' }, { label: 'Query' }, { label: 'Key position' }, { label: 'Key' }];
const micro = (/** @type {number} */ us) => us.toFixed(us < 10 ? 1 : 0);
const three = (/** @type {number} */ value) => (Number.isFinite(value) ? value.toFixed(3) : '–');

/** Of what a map shows: "Weight", or "Share of the output". @param {boolean} shares @returns {Column} */
function weightColumn(shares) {
  return { label: shares ? 'Share of the output' : 'Weight', format: formatWeight };
}

/** @param {string[]} tokens @param {number} query @param {number} key @returns {Cell[]} */
function link(tokens, query, key) {
  return [query, tokens[query], key, tokens[key]];
}

/** @param {string[]} tokens @param {import('../types').Row} row @param {boolean} shares @returns {Table} */
export function linksTable(tokens, { query, links }, shares) {
  return { name: 'strongest-links', columns: [...LINK, weightColumn(shares)], rows: links.map(({ key, weight }) => [...link(tokens, query, key), weight]) };
}

/**
 * @param {string[]} tokens @param {{ query: number, key: number, weight: number | undefined }[]} pins
 * @param {boolean} shares @returns {Table}
 */
export function pinsTable(tokens, pins, shares) {
  return { name: 'pinned-cells', columns: [...LINK, weightColumn(shares)], rows: pins.map(({ query, key, weight }) => [...link(tokens, query, key), weight]) };
}

/**
 * Every head with its labels, and the score of each label whether the head has it or not.
 * @param {import('../types').HeadFindings} findings @param {import('../types').Label[]} labels @param {number} heads of a layer
 * @returns {Table}
 */
export function headsTable({ shown, scores, entropy, sparsity }, labels, heads) {
  const title = (/** @type {string} */ name) => labels.find((label) => label.name === name)?.title ?? name;
  return {
    name: 'heads',
    columns: [
      ...['Layer', 'Head', 'Labels'].map((label) => ({ label })),
      { label: 'Mean entropy', unit: 'bits', format: three },
      { label: 'Sparsity', format: three },
      ...labels.map((label) => ({ label: `Score: ${label.title}`, format: three })),
    ],
    rows: shown.map((own, index) => [
      Math.floor(index / heads),
      index % heads,
      own.map(({ name }) => title(name)).join('; '),
      entropy[index],
      sparsity[index],
      ...scores.slice(index * labels.length, (index + 1) * labels.length),
    ]),
  };
}

/** @param {import('../types').Measurement[]} timings @param {number} layer @returns {Table} */
export function timingsTable(timings, layer) {
  const times = PARTS.flatMap(([, part]) => [part, `${part}, lower quartile`, `${part}, upper quartile`]);
  return {
    name: `timings-layer${layer}`,
    columns: [
      ...['Kernel', 'Layer', 'Runs', 'Clock'].map((label) => ({ label })),
      ...[...times, 'Total'].map((label) => ({ label, unit: 'µs', format: micro })),
      { label: 'Largest error against float64', format: formatError },
      { label: 'Error of plain float32 numpy', format: formatError },
      { label: 'At most twice that' },
    ],
    rows: timings.map((one) => [
      one.variant,
      layer,
      one.repeats,
      one.clock === 'gpu' ? 'dispatch by GPU timestamps' : 'wall clock',
      ...PARTS.flatMap(([part]) => [one.parts[part]?.median, one.parts[part]?.low, one.parts[part]?.high]),
      totalOf(one),
      one.error,
      one.plain,
      one.ok,
    ]),
  };
}

/** @param {import('../types').CacheStep[]} steps @returns {Table} */
export function cachesTable(steps) {
  return {
    name: 'caches',
    columns: [
      { label: 'Cache' },
      { label: 'Query position' },
      { label: 'Size', unit: 'bytes' },
      { label: 'Step', unit: 'µs', format: micro },
      { label: 'Output error, relative', format: formatError },
      { label: 'Output error, largest', format: formatError },
      { label: 'Weight error, largest', format: formatError },
    ],
    rows: steps.map(({ dtype, position, nbytes, time, relative, error, change }) => [dtype, position, nbytes, time, relative, error, change]),
  };
}

/** @param {{ name: string, found: import('../types').WriteComparison, mean: number }[]} lines caches compared on a written text @returns {Table} */
export function textCachesTable(lines) {
  return {
    name: 'caches-on-text',
    columns: [
      { label: 'Cache' },
      { label: 'Size', unit: 'bytes' },
      { label: 'Perplexity', format: (value) => value.toFixed(2) },
      { label: 'Share of positions with the same likeliest token', format: three },
      { label: 'Mean KL divergence from float32', unit: 'nats per token', format: formatError },
    ],
    rows: lines.map(({ name, found, mean }) => [name, found.bytes, found.perplexity, found.equal, mean]),
  };
}

/** @param {import('../types').DecodeStep} step @returns {Table} */
export function splitsTable({ splits }) {
  return {
    name: 'splits',
    columns: [
      ...['Split', 'First position', 'Last position'].map((label) => ({ label })),
      { label: 'LSE of the split', format: (value) => (Number.isFinite(value) ? value.toFixed(4) : '−∞') },
      { label: 'exp(LSE of the split − LSE)', format: formatWeight },
    ],
    rows: splits.map(({ start, stop, lse, factor }, i) => [i + 1, stop > start ? start : null, stop > start ? stop - 1 : null, lse, factor]),
  };
}

/**
 * @param {{ what: string, figure: string, value: number, note?: string }[]} steps from query · key to the weight
 * @param {string} cell "L5H11-9-2", for the file's name @returns {Table}
 */
export function whyTable(steps, cell) {
  return {
    name: `why-${cell}`,
    columns: [{ label: 'Step' }, { label: 'Value' }, { label: 'Note' }],
    rows: steps.map(({ what, value, note }) => [what, value, note]),
  };
}

/**
 * @param {{ a: string, b: string }} names of the maps @param {string[]} tokens @param {import('../types').CompareFigures} figures
 * @param {{ query: number, key: number, a?: number, b?: number }} cell the chosen one @returns {Table}
 */
export function compareTable(names, tokens, { largest, variation, shannon }, cell) {
  const line = (/** @type {string} */ what, /** @type {{ query: number, key: number, a?: number, b?: number }} */ { query, key, a, b }) => {
    const difference = a === undefined || b === undefined ? null : a - b;
    return /** @type {Cell[]} */ ([what, ...link(tokens, query, key), a, b, difference]);
  };
  const figure = (/** @type {string} */ what, /** @type {number | undefined} */ value) => /** @type {Cell[]} */ ([what, null, null, null, null, null, null, value]);
  return {
    name: 'comparison',
    columns: [
      { label: 'Figure' },
      ...LINK,
      { label: names.a, format: formatWeight },
      { label: names.b, format: formatWeight },
      { label: 'A − B, or the figure', format: formatSigned },
    ],
    rows: [
      line('chosen cell', cell),
      ...(largest ? [line('largest difference', largest)] : []),
      ...(variation === undefined ? [] : [figure('mean total variation distance', variation)]),
      ...(shannon === undefined ? [] : [figure('mean Jensen–Shannon divergence (bits)', shannon)]),
    ],
  };
}
