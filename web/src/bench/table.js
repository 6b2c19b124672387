/** The report on the page: ceilings, the table, the summary, the starts. */

import { fill, h } from '../dom.js';
import { formatError, formatTime } from '../format.js';
import { formatFigure, formatFlops, formatRate, formatShare, tilesText } from './figures.js';
import { peerNames, peerText, summary } from './markdown.js';
import { modelCell, modelFigure, modelNotes, modelPeerNames, modelPeerText } from './model.js';

/**
 * @typedef {import('./types').Report} Report
 * @typedef {import('./types').Row} Row
 */

/** @param {Element} element @param {Report} report */
export function showCeilings(element, { ceilings, processor }) {
  const figure = (/** @type {string} */ name, /** @type {string} */ value, /** @type {string} */ note) =>
    h('div', null, h('dt', null, name), h('dd', null, value), h('dd', { class: 'muted small' }, note));
  const dash = '–';
  fill(
    element,
    figure('Read', ceilings ? `${formatFigure(ceilings.read_gbs)} GB/s` : dash, 'from memory, no cache'),
    figure('Copy', ceilings ? `${formatFigure(ceilings.copy_gbs)} GB/s` : dash, 'read and written'),
    figure('Multiply-add', ceilings ? formatFlops(ceilings.fma_tflops) : dash, 'f32, counted as two'),
    ceilings?.matrix_tflops && figure('Matrices', formatFlops(ceilings.matrix_tflops), 'f16, sums in f32'),
    figure('Empty dispatch', ceilings ? formatTime(ceilings.empty_us) : dash, ceilings ? `pair ${formatTime(ceilings.empty_pair_us)}, waited for ${formatTime(ceilings.empty_wall_us)}; the browser’s least wait ${formatTime(ceilings.least_wait_us)}` : ' '),
    figure('Clocks', !ceilings ? dash : ceilings.clock_ratio === null ? 'wall only' : `${formatFigure(ceilings.clock_ratio)} ×`, 'wall over timestamps'),
    figure('CPU time', processor ? formatTime(processor.call_us) : dash, processor ? `a call; 300 recorded ${formatTime(processor.submit_300_us)}` : ' '),
    figure('Awaited call', processor ? formatTime(processor.awaited_us) : dash, processor ? `a tiny one; ${formatTime(processor.read_us)} with its output read` : ' '),
  );
}

/** @param {Element} element @param {Report} report */
export function showTable(element, report) {
  const peers = peerNames(report);
  const goals = report.rows.some((row) => row.goals.length);
  const number = (/** @type {string} */ text) => h('th', { class: 'number', scope: 'col' }, text);
  fill(
    element,
    h(
      'table',
      { class: 'bench-table' },
      h('caption', { class: 'sr-only' }, 'Workloads'),
      h(
        'thead',
        null,
        h(
          'tr',
          null,
          h('th', { scope: 'col' }, 'Workload'),
          ['GPU time', 'Rate', 'Of ceiling', 'Naive', 'Wall', ...peers].map(number),
          number('Error'),
          goals && h('th', { scope: 'col' }, 'Goals'),
        ),
      ),
      h('tbody', null, report.rows.map((row) => line(row, peers, goals))),
    ),
  );
}

/** @param {Row} row @param {string[]} peers @param {boolean} goals */
function line(row, peers, goals) {
  const { workload, ours, failed, share } = row;
  const cell = (/** @type {(string | Node | null | undefined | false)[]} */ ...content) => h('td', { class: 'number' }, ...content);
  const small = (/** @type {string} */ text) => h('div', { class: 'small muted' }, text);
  const ran = ours && small(`${ours.ran.join(' + ')}${ours.tile ? ` · ${ours.tile}` : ''}`);
  const name = h('th', { scope: 'row' }, workload.title, ran, ours?.tiles && small(tilesText(ours.tiles)));
  if (!ours) {
    return h('tr', { dataset: { workload: workload.name } }, name, h('td', { colSpan: 6 + peers.length + Number(goals), class: 'muted' }, failed ?? ''));
  }
  return h(
    'tr',
    { dataset: { workload: workload.name } },
    name,
    cell(formatTime(ours.gpu_us), small(ours.clock === 'gpu' ? `± ${formatTime((ours.high_us - ours.low_us) / 2)}` : 'wall clock')),
    cell(formatRate(ours.rate, workload)),
    cell(formatShare(share)),
    cell(ours.naive_us ? formatTime(ours.naive_us) : '', ours.naive_us ? small(`${formatFigure(ours.naive_us / ours.gpu_us)} ×`) : null),
    cell(ours.wall ? formatTime(ours.wall.row_us) : '', ours.replay && small(`recorded ${formatTime(ours.replay.row_us)}`)),
    peers.map((peer) => cell(...peerCell(row, peer))),
    cell(formatError(ours.error), small(ours.ok ? `bound ${formatError(ours.bound)}` : `over ${formatError(ours.bound)}`)),
    goals && h('td', null, row.goals.map(goal)),
  );
}

/** @param {Row} row @param {string} name */
function peerCell(row, name) {
  const peer = row.peers.find((candidate) => candidate.peer === name);
  if (peer?.unavailable) return [h('span', { class: 'muted', title: peer.unavailable }, 'not available')];
  const [time, ratio] = peerText(row, name).split(' (');
  return [time, ratio && h('div', { class: 'small muted' }, ratio.replace(')', ' ours'))];
}

/** @param {import('./types').Verdict} verdict */
function goal({ text, value, met }) {
  const state = met === null ? 'open' : met ? 'met' : 'missed';
  const word = met === null ? 'not measured' : `${met ? 'met' : 'not met'}, ${formatFigure(value ?? 0)}`;
  return h('div', { class: 'goal', dataset: { state } }, text, h('div', { class: 'small' }, word));
}

/** The language model's table, and those of its rows that have one of their own. @param {Element} element @param {Report} report */
export function showModel(element, report) {
  const peers = modelPeerNames(report);
  const goals = report.model.some((row) => row.goals.length);
  const heads = ['SmolLM2-135M, 4 bits', 'Here', ...peers, ...(goals ? ['Goals'] : [])];
  const lines = report.model.map((row) => {
    const { work, result, failed } = row;
    const small = (/** @type {string} */ text) => h('div', { class: 'small muted' }, text);
    const notes = modelNotes(row);
    return [
      h('span', null, work.title, notes.length > 0 && small(notes.join('; '))),
      failed ? 'failed' : modelFigure(result?.value, work.unit),
      ...peers.map((name) => modelPeerCell(row, name)),
      ...(goals ? [h('span', null, row.goals.map(goal))] : []),
    ];
  });
  const own = report.model.flatMap(({ work, result }) => (result?.table ? [{ title: work.title, ...result.table }] : []));
  fill(
    element,
    plainTable('SmolLM2', heads, lines),
    own.map(({ title, columns, rows }) => plainTable(title, columns, rows.map((cells) => cells.map(modelCell)))),
  );
}

/** @param {import('./types').ModelRow} row @param {string} name */
function modelPeerCell(row, name) {
  const peer = row.peers.find((candidate) => candidate.peer === name);
  const title = peer?.unavailable ?? peer?.notes?.join('; ') ?? '';
  return h('span', title ? { title } : null, modelPeerText(row, name));
}

/** A table whose first column names its rows. @param {string} caption @param {string[]} heads @param {(string | Node)[][]} rows */
function plainTable(caption, heads, rows) {
  return h(
    'table',
    { class: 'bench-table' },
    h('caption', { class: 'sr-only' }, caption),
    h('thead', null, h('tr', null, heads.map((text, n) => h('th', { scope: 'col', class: n ? 'number' : '' }, text)))),
    h('tbody', null, rows.map(([first, ...rest]) => h('tr', null, h('th', { scope: 'row' }, first), rest.map((cell) => h('td', { class: 'number' }, cell))))),
  );
}

/** @param {Element} element @param {Report} report */
export function showSummary(element, report) {
  fill(element, summary(report).map((text) => h('li', null, text)));
}

/** @param {Element} element @param {Report} report */
export function showStarts(element, { starts }) {
  const stages = [...new Set(starts.flatMap(({ marks }) => Object.keys(marks)))];
  const number = (/** @type {string} */ text) => h('th', { class: 'number', scope: 'col' }, text);
  fill(
    element,
    h(
      'table',
      { class: 'bench-table starts' },
      h('caption', { class: 'sr-only' }, 'Start of the page'),
      h('thead', null, h('tr', null, h('th', { scope: 'col' }, 'Visit'), stages.map((stage) => number(stage.replace('-', ' '))))),
      h(
        'tbody',
        null,
        starts.map(({ visit, marks }) =>
          h('tr', null, h('th', { scope: 'row' }, visit), stages.map((stage) => h('td', { class: 'number' }, stage in marks ? formatTime(1000 * marks[stage]) : ''))),
        ),
      ),
    ),
  );
}
