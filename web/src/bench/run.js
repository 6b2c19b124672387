/**
 * What the bench measures, in order: ceilings, CPU time, each workload by our kernels and by the peers, the language
 * model likewise, starts of the page.
 */

import { leastWait } from './floor.js';
import { judge } from './goals.js';
import { peerNames } from './markdown.js';
import { measureModel } from './model.js';
import { PEERS, Peers } from './peers/client.js';
import { ask, askModel, installBench } from './python.js';
import { describeMedians, describeStart } from './start-text.js';

/**
 * @typedef {import('./types').Report} Report
 * @typedef {import('./types').Row} Row
 * @typedef {import('./types').Workload} Workload
 * @typedef {{ step(text: string, done: number, of: number): void, changed(report: Report): void,
 *   line(kind: string, content: object): void, text(lines: string): void,
 *   openPage(visit: import('./types').Visit): Promise<import('./types').Start> }} Listener
 */

/**
 * @param {import('../runtime/client.js').Runtime} runtime
 * @param {import('./options.js').Options} options
 * @param {Listener} listener
 * @returns {Promise<Report>}
 */
export async function runBench(runtime, options, listener) {
  const info = await runtime.ready;
  if (!info.webgpu) throw new Error(info.reason);
  const begun = performance.now();
  const report = emptyReport(info, options);
  if (options.nothingElse) {
    listener.changed(report); // a frame that is not shown has no width, and shows no map
    await measureStarts(report, options.starts, listener);
    return report;
  }
  await installBench(runtime);
  /** @type {Workload[]} */
  const workloads = await ask(runtime, 'listed', report.size, options.only, options.tiles);
  report.rows = workloads.map((workload) => ({ workload, peers: [], goals: [] }));
  /** @type {import('./types').ModelWork[]} */
  const model = options.tiles && !options.only.length ? [] : await askModel(runtime, 'listed', report.size, options.only);
  report.model = model.map((work) => ({ work, peers: [], goals: [] }));
  const steps = workloads.length + 3;
  const { rows, model: modelRows, starts, ...head } = report;
  listener.line('run', head);
  listener.changed(report);

  listener.step('Ceilings of this adapter', 0, steps);
  report.ceilings = { ...(await ask(runtime, 'ceilings')), least_wait_us: await leastWait() };
  listener.line('ceilings', report.ceilings ?? {});
  listener.changed(report);

  listener.step('CPU time of a call', 1, steps);
  report.processor = await ask(runtime, 'processor');
  listener.line('processor', report.processor ?? {});
  listener.changed(report);

  const peers = new Peers();
  try {
    await measureRows(runtime, report, options, listener, steps, peers);
    await measureModel(runtime, report, options, listener, peers);
  } finally {
    peers.stopAll();
  }
  await measureStarts(report, options.starts, listener);
  report.seconds = (performance.now() - begun) / 1000;
  listener.step('Done', steps, steps);
  listener.changed(report);
  return report;
}

/** @param {import('../runtime/client.js').Info} info @param {import('./options.js').Options} options @returns {Report} */
function emptyReport({ adapter, software, features, versions }, { size, given }) {
  return {
    when: new Date().toISOString(),
    browser: browserName(),
    adapter,
    software,
    features,
    versions,
    size: size ?? (software ? 'small' : 'full'),
    options: given,
    ceilings: null,
    processor: null,
    rows: [],
    model: [],
    starts: [],
    seconds: 0,
  };
}

/**
 * Each workload, by our kernels and then by the peers that have it.
 * @param {import('../runtime/client.js').Runtime} runtime
 * @param {Report} report @param {import('./options.js').Options} options @param {Listener} listener @param {number} steps
 * @param {Peers} peers
 */
async function measureRows(runtime, report, options, listener, steps, peers) {
  const names = PEERS.filter((name) => options.peers?.includes(name) ?? true);
  for (const [index, row] of report.rows.entries()) {
    listener.step(row.workload.title, index + 2, steps);
    await measureOurs(runtime, row, report, options);
    judge(report);
    listener.line('workload', brief(row));
    listener.changed(report);
    for (const name of row.ours ? names : []) {
      listener.step(`${row.workload.title} – ${name}`, index + 2, steps);
      await measurePeer(peers, name, row, report, listener);
    }
    delete row.ours?.expected;
    delete row.ours?.rows;
  }
  for (const name of peerNames(report)) report.versions[name] = await peers.version(name).catch(() => 'did not start');
}

/** @param {Peers} peers @param {string} name @param {Row} row @param {Report} report @param {Listener} listener */
async function measurePeer(peers, name, row, report, listener) {
  if (!row.ours) return;
  const seconds = report.software ? 0.6 : 0.4;
  const f16 = report.features.includes('shader-f16');
  const peer = await peers.run(name, row.workload, row.ours, { seconds, f16 });
  if (!peer) return;
  row.peers.push(peer);
  judge(report);
  listener.line('peer', { workload: row.workload.name, ...peer });
  listener.changed(report);
}

/**
 * Pairs of a first and a repeated visit; several of them are also reported as lines of text, and followed by a visit that lists
 * what Python imports.
 * @param {Report} report @param {number} pairs @param {Listener} listener
 */
async function measureStarts({ starts, ...report }, pairs, listener) {
  const visits = Array.from({ length: pairs }, () => /** @type {const} */ (['first', 'repeated'])).flat();
  const all = pairs > 1 ? [...visits, /** @type {const} */ ('profiled')] : visits;
  for (const [index, visit] of all.entries()) {
    listener.step(`Start of the page, ${visit} visit`, index, all.length);
    try {
      const start = await listener.openPage(visit);
      starts.push(start);
      listener.line('start', start);
      if (pairs > 1) listener.text(describeStart(start).join('\n'));
    } catch (error) {
      listener.line('error', { message: /** @type {Error} */ (error).message });
    }
    listener.changed({ ...report, starts });
  }
  if (pairs > 1) listener.text(describeMedians(starts).join('\n'));
}

/**
 * @param {import('../runtime/client.js').Runtime} runtime
 * @param {Row} row @param {Report} report @param {import('./options.js').Options} options
 */
async function measureOurs(runtime, row, report, { variant, tile, splits, naive, wall, tune, tiles }) {
  try {
    const given = { variant, tile, splits, naive, wall, tune, tiles, samples: true };
    row.ours = await ask(runtime, 'measure', row.workload.name, report.size, given);
  } catch (error) {
    row.failed = /** @type {Error} */ (error).message.split('\n').at(-1);
  }
}

/** A row without the reference's numbers. @param {Row} row */
function brief({ workload, ours, failed, share, goals }) {
  const { expected, rows, ...figures } = ours ?? {};
  return { workload: workload.name, failed, share, goals, ...figures };
}

function browserName() {
  const brands = /** @type {any} */ (navigator).userAgentData?.brands ?? [];
  const named = brands.find((/** @type {any} */ b) => b.brand === 'Chromium') ?? brands[0];
  return named ? `${named.brand} ${named.version}` : navigator.userAgent;
}
