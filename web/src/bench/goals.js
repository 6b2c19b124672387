/** Compares figures with the goals of bench/workloads.py. */

import { formatFigure, unitOf } from './figures.js';

/**
 * @typedef {import('./types').Row} Row
 * @typedef {import('./types').Goal} Goal
 * @typedef {import('./types').Verdict} Verdict
 * @typedef {import('./types').Report} Report
 */

/** Fills in the share of the ceiling and the goals of all rows, as far as they are there. @param {Report} report */
export function judge(report) {
  for (const row of report.rows) {
    row.share = share(row, report);
    row.goals = row.workload.goals.map((goal) => verdict(goal, row, report));
  }
}

/** The share of the ceiling that bounds a row. @param {Row} row @param {Report} report */
function share({ workload, ours }, { ceilings }) {
  if (!ours || !ceilings) return null;
  if (workload.variant === 'matrix') {
    // float32 takes three products of halves for one.
    const products = workload.dtype === 'float32' ? 3 : 1;
    return ceilings.matrix_tflops ? (ours.rate * products) / ceilings.matrix_tflops : null;
  }
  return ours.rate / (workload.bytes === null ? ceilings.fma_tflops : ceilings.read_gbs);
}

/** @param {Goal} goal @param {Row} row @param {Report} report @returns {Verdict} */
function verdict(goal, row, report) {
  const value = figure(goal, row, report);
  const sign = goal.sign === '>=' ? '≥' : '≤';
  const met = value === null ? null : goal.sign === '>=' ? value >= goal.value : value <= goal.value;
  if (!goal.of) return { text: `${sign} ${formatFigure(goal.value)} ${unitOf(row.workload)}`, value, met };
  const what = { rate: 'rate', time: 'time', wall: 'wall' }[goal.metric];
  const of = goal.of === 'floor' ? '(empty pair + bytes)' : goal.of;
  return { text: `${what} ${sign} ${goal.value} × ${of}`, value, met };
}

/** @param {Goal} goal @param {Row} row @param {Report} report @returns {number | null} */
function figure({ metric, of }, row, { rows, ceilings }) {
  const own = pick(metric, row);
  if (own === null || !of) return own;
  if (of === 'floor') {
    if (!ceilings || row.workload.bytes === null) return null;
    return own / (ceilings.empty_pair_us + row.workload.bytes / ceilings.read_gbs / 1e3);
  }
  const peer = row.peers.find(({ peer }) => peer === of);
  if (peer) return peer.wall && peer.ok ? own / peer.wall.row_us : null;
  const other = rows.find(({ workload }) => workload.name === of);
  const theirs = other ? pick(metric, other) : null;
  return theirs === null ? null : own / theirs;
}

/** @param {Goal['metric']} metric @param {Row} row @returns {number | null} */
function pick(metric, { ours }) {
  if (!ours || !ours.ok) return null;
  if (metric === 'wall') return ours.wall?.row_us ?? null;
  return metric === 'rate' ? ours.rate : ours.gpu_us;
}

/**
 * How many times faster we are than a peer in wall time: the geometric mean over the rows that both have.
 * @param {Report} report @param {string} name
 * @returns {{ ratio: number, count: number } | null}
 */
export function speedUp(report, name) {
  const ratios = report.rows.flatMap(({ ours, peers }) => {
    const peer = peers.find(({ peer, ok }) => peer === name && ok);
    return ours?.wall && ours.ok && peer?.wall ? [peer.wall.row_us / ours.wall.row_us] : [];
  });
  if (!ratios.length) return null;
  const ratio = Math.exp(ratios.reduce((sum, x) => sum + Math.log(x), 0) / ratios.length);
  return { ratio, count: ratios.length };
}
