/** What was measured of a kernel, in words and figures. */

import { formatCount, formatError, timeColumn } from '../format.js';
import { describeShape } from './wording.js';

/**
 * @typedef {import('../types').Measurement} Measurement
 * @typedef {import('../worker.js').OperationInfo} OperationInfo
 */

/** The parts of a call that are timed: name, label, and what each contains. */
export const PARTS = /** @type {[import('../types').Part, string, string][]} */ ([
  ['upload', 'Upload', 'copying Q, K and V to GPU memory, until the queue is empty'],
  ['compile', 'Compile', 'compiling WGSL to a pipeline'],
  ['dispatch', 'Dispatch', 'running the kernel'],
  ['readback', 'Read-back', 'copying the output to a numpy array'],
]);

/** What the choice of a variant runs. @param {string} choice @param {string[]} variants @param {string[]} operations */
export function namesToRun(choice, variants, operations) {
  return { all: variants, operations }[choice] ?? [choice];
}

/** The timings with one more, which replaces an earlier one of the same variant. @param {Measurement[]} timings @param {Measurement} one */
export function withTiming(timings, one) {
  return [...timings.filter(({ variant }) => variant !== one.variant), one];
}

/** Each part's share of the whole time. @param {Measurement} measured @returns {[part: string, share: number][]} */
export function partShares(measured) {
  const { parts } = measured;
  const total = totalOf(measured);
  return PARTS.map(([part]) => [part, total && (parts[part]?.median ?? 0) / total]);
}

/** The whole of a call: the sum of the medians of its parts, in microseconds. @param {Measurement} measured */
export function totalOf({ parts }) {
  return Object.values(parts).reduce((sum, { median }) => sum + median, 0);
}

/**
 * How each column of a table is written: in one unit.
 * @param {Measurement[]} measured the rows
 * @returns {Record<string, ReturnType<typeof timeColumn>>} by the parts' names, and "total"
 */
export function timeColumns(measured) {
  const largest = (/** @type {number[]} */ times) => timeColumn(Math.max(0, ...times));
  const columns = PARTS.map(([part]) => [part, largest(measured.map(({ parts }) => parts[part]?.high ?? 0))]);
  return { ...Object.fromEntries(columns), total: largest(measured.map(totalOf)) };
}

/**
 * The cells of a table row: a figure and a small line below it.
 * @param {Measurement | null | undefined} measured
 * @param {ReturnType<typeof timeColumns>} columns
 * @returns {{ text: string, below: string }[]}
 */
export function partCells(measured, columns) {
  const cells = PARTS.map(([part]) => {
    const spread = measured?.parts[part];
    if (!spread) return { text: measured ? '–' : '·', below: ' ' };
    return { text: columns[part].time(spread.median), below: columns[part].range(spread.low, spread.high) };
  });
  return [...cells, { text: measured ? columns.total.time(totalOf(measured)) : '·', below: ' ' }];
}

/** How many times as long as the fastest a kernel took, of those that compute the same. @param {Measurement | undefined} measured @param {Measurement[]} all */
export function timesFastest(measured, all) {
  const time = measured?.parts.dispatch?.median;
  if (!time) return measured ? '–' : '·';
  const fastest = Math.min(...all.map(({ parts }) => parts.dispatch?.median || Infinity));
  const ratio = time / fastest;
  return `${ratio.toFixed(ratio < 9.95 ? 1 : 0)} ×`;
}

/** @param {{ webgpu: boolean, software: boolean, adapter: string }} info */
export function describeAdapter({ webgpu, software, adapter }) {
  if (!webgpu) return 'WebGPU is not available, so the numpy reference is timed instead.';
  return software
    ? `${adapter}. This is a software adapter: the CPU does the work, so the times say nothing about a GPU.`
    : `${adapter}.`;
}

/**
 * @param {Measurement} measured
 * @param {OperationInfo | undefined} operation none for a variant of the attention call itself
 * @param {import('../types').SourceInfo} source
 * @param {number} layer
 */
export function describeMeasurement(measured, operation, source, layer) {
  const { rows, allRows, plain } = measured;
  const all = rows === allRows;
  const against = `Error: largest difference to float64`;
  const ofNumpy = `plain numpy in float32 has an error of ${formatError(plain)}.`;
  if (operation) {
    const part = all ? '' : `, the first ${formatCount(rows)} positions`;
    return `${operation.call}: ${operation.about}. Layer ${layer}${part}. ${describeClock(measured)} ${against}; ${ofNumpy}`;
  }
  const checked = all ? 'all rows' : `${formatCount(rows)} of ${formatCount(allRows)} rows`;
  return `Layer ${layer}: ${describeShape(source)}. ${describeClock(measured)} ${against} over ${checked}; ${ofNumpy}`;
}

/** @param {Measurement} measured */
function describeClock({ repeats, clock }) {
  const how =
    clock === 'gpu'
      ? 'dispatch by GPU timestamps, the rest by wall clock'
      : 'all by wall clock, which includes the browser’s messaging';
  return `Medians of ${repeats} runs with their quartiles; ${how}.`;
}
