/** The language model in the bench: our rows, the peer's figures for them, and their goals. */

import { formatFigure } from './figures.js';
import { MODEL_PEERS } from './peers/client.js';
import { askModel } from './python.js';

/**
 * @typedef {import('./types').Report} Report
 * @typedef {import('./types').ModelRow} ModelRow
 * @typedef {import('./types').ModelWork} ModelWork
 */

/** Rows that the peers have too. */
const PEER_ROWS = ['model-load', 'model-decode-f16', 'model-prefill'];

/**
 * Each row by our kernels, then the peers.
 * @param {import('../runtime/client.js').Runtime} runtime @param {Report} report
 * @param {import('./options.js').Options} options @param {import('./run.js').Listener} listener
 * @param {import('./peers/client.js').Peers} peers
 */
export async function measureModel(runtime, report, options, listener, peers) {
  const { model: rows, size } = report;
  if (!rows.length) return;
  for (const [index, row] of rows.entries()) {
    listener.step(`SmolLM2: ${row.work.title}`, index, rows.length);
    try {
      row.result = await askModel(runtime, 'measure', row.work.name, size);
    } catch (error) {
      row.failed = /** @type {Error} */ (error).message.split('\n').at(-1);
    }
    judgeModel(rows);
    listener.line('model', { row: row.work.name, title: row.work.title, unit: row.work.unit, failed: row.failed, goals: row.goals, ...row.result });
    listener.changed(report);
  }
  const names = MODEL_PEERS.filter((name) => !options.peers || options.peers.some((asked) => name.startsWith(asked)));
  if (!rows.some((row) => PEER_ROWS.includes(row.work.name))) names.length = 0;
  const task = names.length ? await askModel(runtime, 'peer_task', size).catch(() => null) : null;
  // Ours goes first, so that the peer has the GPU to itself.
  await askModel(runtime, 'close');
  for (const name of task ? names : []) {
    listener.step(`SmolLM2 – ${name}`, rows.length, rows.length);
    await measurePeer(peers, name, task, report, listener);
  }
}

/**
 * A peer's figures for the rows that it has.
 * @param {import('./peers/client.js').Peers} peers @param {string} name @param {import('./types').ModelPeerTask} task
 * @param {Report} report @param {import('./run.js').Listener} listener
 */
async function measurePeer(peers, name, task, report, listener) {
  const found = await peers.runModel(name, task);
  const { values = {}, ...rest } = found;
  for (const row of report.model) {
    const value = values[row.work.name];
    if (PEER_ROWS.includes(row.work.name)) row.peers.push({ peer: name, value, ...rest });
  }
  judgeModel(report.model);
  listener.line('model-peer', { peer: name, ...found });
  report.versions[name] = await peers.version(name).catch(() => 'did not start');
  listener.changed(report);
}

/** Fills in the goals of all rows, as far as their figures are there. @param {ModelRow[]} rows */
export function judgeModel(rows) {
  for (const row of rows) {
    row.goals = row.work.goals.map(({ sign, value, of }) => {
      const own = row.result?.ok ? row.result.value : null;
      const figure = own === null || !of ? own : ratio(own, row, of);
      const met = figure === null ? null : sign === '>=' ? figure >= value : figure <= value;
      const compared = sign === '>=' ? '≥' : '≤';
      const text = of ? `${compared} ${value} × ${of}` : `${compared} ${formatFigure(value)} ${row.work.unit}`;
      return { text, value: figure, met };
    });
  }
}

/** Our figure over that of the peer's fastest way. @param {number} own @param {ModelRow} row @param {string} of */
function ratio(own, { peers }, of) {
  const theirs = peers.filter(({ peer, ok, value }) => peer.startsWith(of) && ok && value).map(({ value }) => /** @type {number} */ (value));
  return theirs.length ? own / Math.max(...theirs) : null;
}

/** A row's figure with its unit. @param {number | null | undefined} value @param {string} unit */
export function modelFigure(value, unit) {
  if (value == null) return '';
  return `${formatFigure(value)} ${unit}`.trim();
}

/** @param {Report} report */
export function modelPeerNames({ model }) {
  return [...new Set(model.flatMap(({ peers }) => peers.map(({ peer }) => peer)))];
}

/** What a peer gives for a row. @param {ModelRow} row @param {string} name */
export function modelPeerText({ work, result, peers }, name) {
  const peer = peers.find((candidate) => candidate.peer === name);
  if (!peer) return '';
  if (peer.unavailable) return 'not available';
  const figure = modelFigure(peer.value, work.unit);
  if (!peer.ok) return `${figure}, another text`;
  const own = result?.ok ? result.value : null;
  const factor = !own || !peer.value ? null : work.unit.endsWith('/s') ? own / peer.value : peer.value / own;
  return factor ? `${figure} (ours ${formatFigure(factor)} × as fast)` : figure;
}

/** A row's remarks, its peers' included. @param {ModelRow} row */
export function modelNotes({ result, failed, peers, work }) {
  const notes = failed ? [`failed: ${failed}`] : [...(result?.notes ?? [])];
  if (result && !result.ok) notes.unshift('not right');
  if (work.name === 'model-decode-f16') notes.push(...peers.flatMap(({ peer, unavailable }) => (unavailable ? [`${peer}: ${unavailable}`] : [])));
  return notes;
}

/** A cell of a row's own table. @param {string | number | null} cell */
export function modelCell(cell) {
  return typeof cell === 'number' ? formatFigure(cell) : (cell ?? '–');
}
