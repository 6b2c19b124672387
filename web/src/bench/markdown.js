/** A report as Markdown: what stands in the README and in bench/results/. */

import { formatError, formatTime } from '../format.js';
import { markdownRow as table } from '../table-text.js';
import { formatFigure, formatFlops, formatRate, formatShare, tilesText } from './figures.js';
import { speedUp } from './goals.js';
import { modelCell, modelFigure, modelNotes, modelPeerNames, modelPeerText } from './model.js';

/**
 * @typedef {import('./types').Report} Report
 * @typedef {import('./types').Row} Row
 * @typedef {import('./types').Verdict} Verdict
 */

/** @param {Report} report */
export function toMarkdown(report) {
  const goals = report.rows.some((row) => row.goals.length);
  const columns = ['workload', 'time', 'rate', 'of ceiling', 'naive', 'wall', 'replayed', ...peerNames(report), 'error'];
  if (goals) columns.push('goals');
  const lines = [
    `# py-attn on ${report.adapter}`,
    '',
    `${report.when.slice(0, 10)}, ${report.browser}, ${report.size} shapes${optionsText(report)}. ` +
      `${Object.entries(report.versions).map(([name, version]) => `${name} ${version}`).join(', ')}.`,
    '',
    ...ceilingLines(report),
    '',
  ];
  if (report.rows.length) {
    lines.push(
      table(columns),
      table(columns.map(() => '---')),
      ...report.rows.map((row) => table(cells(row, report, goals))),
      '',
      'Time: on the GPU, median over passes of many calls. Wall: each of many calls in a row, from the first call until the ' +
        'queue is empty; the peers are timed by the same steps with inputs and outputs on the GPU. Replayed: the same for a ' +
        'recorded program. Error: largest difference from float64 on sampled rows (for TurboQuant: relative square error).',
    );
  }
  lines.push(...tileLines(report), ...modelLines(report));
  for (const line of summary(report)) lines.push('', `${line}.`);
  for (const { visit, marks } of report.starts) {
    const stages = Object.entries(marks).map(([stage, ms]) => `${stage} ${formatTime(1000 * ms)}`);
    lines.push('', `Start of the page, ${visit}: ${stages.join(', ')}.`);
  }
  return `${lines.join('\n')}\n`;
}

/** With `?tiles=1` the times of all tiles. @param {Report} report */
function tileLines({ rows }) {
  return rows.flatMap(({ workload, ours }) => {
    if (!ours?.tiles) return [];
    const times = Object.entries(ours.tiles.us).sort(([, a], [, b]) => a - b);
    const each = times.map(([name, us]) => `${name}: ${formatTime(us)}`).join('; ');
    return ['', `${workload.title} takes ${ours.tiles.chosen}, ${tilesText(ours.tiles)}. ${each}.`];
  });
}

/** What the whole run says, a sentence each. @param {Report} report */
export function summary(report) {
  const judged = [...report.rows, ...report.model].flatMap(({ goals }) => goals).filter(({ met }) => met !== null);
  const lines = judged.length ? [`${judged.filter(({ met }) => met).length} of ${judged.length} goals met`] : [];
  for (const name of peerNames(report)) {
    const found = speedUp(report, name);
    if (found) lines.push(`${formatFigure(found.ratio)} × the speed of ${name} in wall time (geometric mean of ${found.count})`);
  }
  const least = leastOverNaive(report);
  if (least) lines.push(`At least ${formatFigure(least.ratio)} × the speed of the naive kernel (${least.title})`);
  return lines;
}

/** The row that gains least over the naive kernel. @param {Report} report */
function leastOverNaive({ rows }) {
  const ratios = rows.flatMap(({ workload: { title }, ours }) => (ours?.naive_us ? [{ title, ratio: ours.naive_us / ours.gpu_us }] : []));
  return ratios.sort((a, b) => a.ratio - b.ratio)[0];
}

/** @param {Report} report */
export function peerNames(report) {
  return [...new Set(report.rows.flatMap(({ peers }) => peers.map(({ peer }) => peer)))];
}

/** @param {Report} report */
function optionsText({ options }) {
  const given = Object.entries(options).filter(([name]) => name !== 'start');
  return given.length ? `, ?${given.map(([name, value]) => `${name}=${value}`).join('&')}` : '';
}

/** @param {Report} report */
function ceilingLines({ ceilings, processor }) {
  const lines = [];
  if (ceilings) {
    const ratio = ceilings.clock_ratio === null ? 'no timestamps' : `wall/timestamps ${formatFigure(ceilings.clock_ratio)}`;
    lines.push(
      `Ceilings: read ${formatFigure(ceilings.read_gbs)} GB/s, copy ${formatFigure(ceilings.copy_gbs)} GB/s, ` +
        `FMA ${formatFlops(ceilings.fma_tflops)}, ${ceilings.matrix_tflops ? `matrices ${formatFlops(ceilings.matrix_tflops)}, ` : ''}empty dispatch ${formatTime(ceilings.empty_us)}, ` +
        `pair ${formatTime(ceilings.empty_pair_us)}, one waited for ${formatTime(ceilings.empty_wall_us)} (the browser's least wait ${formatTime(ceilings.least_wait_us)}); ${ratio}.`,
    );
  }
  if (processor) {
    lines.push(
      `CPU time: one \`pa.attention\` ${formatTime(processor.call_us)}, ` +
        `a recorded program of 300 dispatches ${formatTime(processor.submit_300_us)}.`,
      `One tiny \`pa.attention\` that is waited for ${formatTime(processor.awaited_us)}, with its output read back ${formatTime(processor.read_us)}.`,
    );
  }
  return lines;
}

/** The language model's table, and those of its rows that have one of their own. @param {Report} report */
function modelLines(report) {
  if (!report.model.length) return [];
  const peers = modelPeerNames(report);
  const goals = report.model.some((row) => row.goals.length);
  const columns = ['SmolLM2-135M, 4 bits', 'here', ...peers, ...(goals ? ['goals'] : []), 'remarks'];
  const lines = ['', table(columns), table(columns.map(() => '---'))];
  for (const row of report.model) {
    const judged = goals ? [row.goals.map(goalText).join('; ')] : [];
    const theirs = peers.map((name) => modelPeerText(row, name));
    lines.push(table([row.work.title, modelFigure(row.result?.value, row.work.unit), ...theirs, ...judged, modelNotes(row).join('; ')]));
  }
  for (const name of peers) {
    const notes = report.model.flatMap(({ peers: all }) => all).find(({ peer }) => peer === name)?.notes;
    if (notes) lines.push('', `${name}: ${notes.join('; ')}.`);
  }
  for (const { result } of report.model) {
    if (!result?.table) continue;
    const { columns: heads, rows } = result.table;
    lines.push('', table(heads), table(heads.map(() => '---')), ...rows.map((cells) => table(cells.map(modelCell))));
  }
  return lines;
}

/** @param {Row} row @param {Report} report @param {boolean} goals @returns {string[]} */
function cells(row, report, goals) {
  const { workload, ours, failed, share } = row;
  const peers = peerNames(report).map((name) => peerText(row, name));
  const last = goals ? [row.goals.map(goalText).join('; ')] : [];
  if (!ours) return [workload.title, failed ? `failed: ${failed}` : '', '', '', '', '', '', ...peers, '', ...last];
  return [
    workload.title,
    formatTime(ours.gpu_us),
    formatRate(ours.rate, workload),
    formatShare(share),
    ours.naive_us ? `${formatFigure(ours.naive_us / ours.gpu_us)} × slower` : '',
    ours.wall ? formatTime(ours.wall.row_us) : '',
    ours.replay ? formatTime(ours.replay.row_us) : '',
    ...peers,
    `${formatError(ours.error)}${ours.ok ? '' : ' (over the bound)'}`,
    ...last,
  ];
}

/** A peer's wall time, and how many times ours it is. @param {Row} row @param {string} name */
export function peerText({ ours, peers }, name) {
  const peer = peers.find((candidate) => candidate.peer === name);
  if (!peer) return '';
  if (!peer.wall) return 'not available';
  if (!peer.ok) return `${formatTime(peer.wall.row_us)}, another result`;
  const ratio = ours?.wall ? ` (${formatFigure(peer.wall.row_us / ours.wall.row_us)} ×)` : '';
  return `${formatTime(peer.wall.row_us)}${ratio}`;
}

/** @param {Verdict} verdict */
export function goalText({ text, value, met }) {
  if (value === null) return `${text}: not measured`;
  return `${text}: ${met ? 'met' : 'not met'} (${formatFigure(value)})`;
}
