import { describe, expect, it } from 'vitest';
import { tilesText } from '../src/bench/figures.js';
import { judge, speedUp } from '../src/bench/goals.js';
import { judgeModel, modelPeerText } from '../src/bench/model.js';
import { sameBeginning } from '../src/bench/peers/client.js';
import { peerText, summary, toMarkdown } from '../src/bench/markdown.js';
import { readOptions } from '../src/bench/options.js';
import { describeMedians, describeStart } from '../src/bench/start-text.js';

/** @typedef {import('../src/bench/types').Report} Report */

/** @param {object} workload @param {object} [ours] @param {object[]} [peers] @returns {any} */
const row = (workload, ours, peers = []) => ({
  workload: { name: 'minilm', title: 'MiniLM', kind: 'attention', bytes: null, flops: 1e9, variant: 'auto', goals: [], ...workload },
  ours: ours && { gpu_us: 100, rate: 10, ok: true, error: 1e-6, bound: 2e-6, ran: ['tiled'], ...ours },
  peers,
  goals: [],
});

/** @param {any[]} rows @param {object} [changes] @returns {Report} */
const report = (rows, changes) => ({
  when: '2026-11-22T10:00:00.000Z',
  browser: 'Chromium 156',
  adapter: 'nvidia hopper',
  software: false,
  features: [],
  versions: { 'py-attn': '0.1.0', pyodide: '314.0.4' },
  size: 'full',
  options: { only: 'minilm', start: '' },
  ceilings: {
    read_gbs: 4400,
    copy_gbs: 4240,
    fma_tflops: 65.2,
    empty_us: 2,
    empty_pair_us: 5,
    empty_wall_us: 150,
    least_wait_us: 60,
    clock_ratio: 1.01,
    timestamps: true,
  },
  processor: { call_us: 140, awaited_us: 310, read_us: 550, submit_300_us: 900 },
  rows,
  model: [],
  starts: [],
  seconds: 10,
  ...changes,
});

const wall = (/** @type {number} */ row_us) => ({ alone_us: row_us, row_us, calls: 10 });

describe('judge', () => {
  it('compares a rate with its goal and with the ceiling that bounds it', () => {
    const goals = [{ metric: 'rate', sign: '>=', value: 12, of: '' }];
    const compute = row({ goals }, { rate: 13.04 });
    const memory = row({ bytes: 1e6, goals }, { rate: 11 });
    judge(report([compute, memory]));
    expect(compute).toMatchObject({ share: expect.closeTo(0.2, 9), goals: [{ text: '≥ 12.0 TFLOP/s', value: 13.04, met: true }] });
    expect(memory).toMatchObject({ share: 0.0025, goals: [{ text: '≥ 12.0 GB/s', met: false }] });
  });

  it('compares subgroup matrices with their own ceiling', () => {
    const matrix = (dtype = 'float16') => row({ variant: 'matrix', dtype }, { rate: 180 });
    const [with_, without, three] = [matrix(), matrix(), matrix('float32')];
    const { ceilings } = report([]);
    judge(report([with_, three], { ceilings: { ...ceilings, matrix_tflops: 720 } }));
    judge(report([without]));
    expect(with_.share).toBe(0.25);
    expect(three.share).toBe(0.75); // three products of float16 for one of float32
    expect(without.share).toBeNull();
  });

  it('compares with another row, with a peer and with the least that a decode takes', () => {
    const other = row({ name: 'other' }, { gpu_us: 200 });
    const goals = [
      { metric: 'time', sign: '<=', value: 0.6, of: 'other' },
      { metric: 'wall', sign: '<=', value: 0.5, of: 'jax-js' },
      { metric: 'time', sign: '<=', value: 10, of: 'floor' },
    ];
    const peers = [{ peer: 'jax-js', wall: wall(100), ok: true }];
    const judged = row({ bytes: 4.4e6, goals }, { gpu_us: 120, wall: wall(80) }, peers);
    judge(report([other, judged]));
    expect(judged.goals.map((/** @type {any} */ { met }) => met)).toEqual([true, false, false]);
    expect(judged.goals[0].text).toBe('time ≤ 0.6 × other');
    expect(judged.goals[1].value).toBe(0.8);
    expect(judged.goals[2].value).toBeCloseTo(120 / (5 + 1), 9);
  });

  it('does not judge what is wrong or was not measured', () => {
    const goals = [{ metric: 'rate', sign: '>=', value: 1, of: '' }];
    const wrong = row({ goals }, { ok: false });
    const missing = row({ goals });
    judge(report([wrong, missing]));
    for (const { goals: verdicts } of [wrong, missing]) expect(verdicts[0]).toMatchObject({ value: null, met: null });
    expect(missing.share).toBeNull();
  });
});

describe('speedUp', () => {
  it('is the geometric mean over rows that both have right', () => {
    const peer = (/** @type {number} */ us, ok = true) => [{ peer: 'jax-js', wall: wall(us), ok }];
    const rows = [row({}, { wall: wall(10) }, peer(20)), row({}, { wall: wall(10) }, peer(80)), row({}, { wall: wall(10) }, peer(1, false))];
    expect(speedUp(report(rows), 'jax-js')).toEqual({ ratio: expect.closeTo(4, 9), count: 2 });
    expect(speedUp(report(rows), 'onnxruntime-web')).toBeNull();
  });
});

describe('toMarkdown', () => {
  const peers = [{ peer: 'jax-js', wall: wall(500), ok: true }];
  const made = report([
    row({ title: 'Mini|LM' }, { naive_us: 300, wall: wall(250), replay: wall(120) }, peers),
    { ...row({ title: 'Other' }), failed: 'out of memory' },
  ]);
  const lines = toMarkdown(made).split('\n');

  it('has a table with as many cells in every line', () => {
    const table = lines.filter((line) => line.startsWith('|'));
    expect(table).toHaveLength(4);
    const cells = table.map((line) => line.replaceAll('\\|', '').split('|').length);
    expect(new Set(cells).size).toBe(1);
    expect(table[0]).toBe('| workload | time | rate | of ceiling | naive | wall | replayed | jax-js | error |');
    expect(table[2]).toBe('| Mini\\|LM | 100 µs | 10.0 TFLOP/s |  | 3.00 × slower | 250 µs | 120 µs | 500 µs (2.00 ×) | 1.0e-6 |');
    expect(table[3]).toContain('| Other | failed: out of memory |');
  });

  it('says on what it was measured, with which options, and in between what the CPU takes', () => {
    expect(lines[0]).toBe('# py-attn on nvidia hopper');
    expect(lines[2]).toBe('2026-11-22, Chromium 156, full shapes, ?only=minilm. py-attn 0.1.0, pyodide 314.0.4.');
    expect(lines.find((line) => line.startsWith('Ceilings'))).toContain('read 4,400 GB/s, copy 4,240 GB/s, FMA 65.2 TFLOP/s');
    expect(lines.find((line) => line.startsWith('CPU time'))).toContain('one `pa.attention` 140 µs');
    expect(lines).toContain('One tiny `pa.attention` that is waited for 310 µs, with its output read back 550 µs.');
  });

  it('ends with what the run says as a whole', () => {
    expect(summary(made)).toEqual([
      '2.00 × the speed of jax-js in wall time (geometric mean of 1)',
      'At least 3.00 × the speed of the naive kernel (Mini|LM)',
    ]);
  });

  it('lists the times of all tiles where they were measured, the fastest first', () => {
    const us = { 'tiled 64x64': 102.5, 'tiled 128x64': 100 };
    const tiles = { chosen: 'tiled 64x64', best: 'tiled 128x64', ratio: 1.025, us };
    const [line] = toMarkdown(report([row({ title: 'long' }, { tiles })])).split('\n').filter((text) => text.startsWith('long takes'));
    expect(line).toBe(
      'long takes tiled 64x64, 1.025 × the time of the fastest tile, tiled 128x64. tiled 128x64: 100 µs; tiled 64x64: 103 µs.',
    );
    expect(tilesText({ ...tiles, best: 'tiled 64x64', ratio: 1 })).toBe('1.000 × the time of the fastest tile, its own');
    expect(tilesText(undefined)).toBe('');
  });

  it('says of a peer what there is to say', () => {
    const with_ = (/** @type {object} */ peer) => peerText(row({}, { wall: wall(10) }, [{ peer: 'jax-js', ...peer }]), 'jax-js');
    expect(with_({ unavailable: 'no f16' })).toBe('not available');
    expect(with_({ wall: wall(10), ok: false })).toBe('10 µs, another result');
    expect(peerText(row({}), 'jax-js')).toBe('');
  });
});

describe('the language model', () => {
  /** @param {object} [changes] @param {object} [result] @returns {any} */
  const decode = (changes, result) => ({
    work: {
      name: 'model-decode-f16',
      title: 'decode',
      unit: 'tokens/s',
      goals: [
        { sign: '>=', value: 1000, of: '' },
        { sign: '>=', value: 5, of: 'wllama' },
      ],
    },
    result: { value: 1200, ok: true, notes: ['a remark'], table: null, ...result },
    peers: [
      { peer: 'wllama on WebGPU', value: 300, ok: true, notes: ['all layers on WebGPU'] },
      { peer: 'wllama on the CPU', value: 30, ok: true },
    ],
    goals: [],
    ...changes,
  });

  it('is judged by its figures, and against the fastest way of the peer', () => {
    const row = decode();
    judgeModel([row]);
    expect(row.goals).toEqual([
      { text: '≥ 1,000 tokens/s', value: 1200, met: true },
      { text: '≥ 5 × wllama', value: 4, met: false },
    ]);
    const wrong = decode({}, { ok: false });
    judgeModel([wrong]);
    expect(wrong.goals.map((/** @type {any} */ { met }) => met)).toEqual([null, null]);
    const alone = decode({ peers: [{ peer: 'wllama on WebGPU', unavailable: 'no shader-f16' }] });
    judgeModel([alone]);
    expect(alone.goals[1]).toMatchObject({ value: null, met: null });
  });

  it('has tables of its own in the Markdown', () => {
    const table = { columns: ['cache', 'perplexity'], rows: [['float32', 20.69], ['float16', null]] };
    const rows = [decode(), { ...decode({ peers: [] }, { value: 20.69, table }), work: { name: 'model-perplexity', title: 'perplexity', unit: '', goals: [] } }];
    judgeModel(rows);
    const lines = toMarkdown(report([], { model: rows })).split('\n');
    expect(lines).toContain('| SmolLM2-135M, 4 bits | here | wllama on WebGPU | wllama on the CPU | goals | remarks |');
    expect(lines.find((line) => line.startsWith('| decode'))).toBe(
      '| decode | 1,200 tokens/s | 300 tokens/s (ours 4.00 × as fast) | 30.0 tokens/s (ours 40.0 × as fast) | ≥ 1,000 tokens/s: met (1,200); ≥ 5 × wllama: not met (4.00) | a remark |',
    );
    expect(lines).toContain('wllama on WebGPU: all layers on WebGPU.');
    expect(lines.slice(lines.indexOf('| cache | perplexity |') + 2)).toEqual(expect.arrayContaining(['| float32 | 20.7 |', '| float16 | – |']));
    expect(lines.some((line) => line.startsWith('| workload'))).toBe(false);
  });

  it('compares a peer only where its text is right', () => {
    const row = decode();
    row.peers[0].ok = false;
    expect(modelPeerText(row, 'wllama on WebGPU')).toBe('300 tokens/s, another text');
    const prefill = decode({ work: { name: 'model-prefill', title: '', unit: 'ms', goals: [] }, peers: [{ peer: 'p', value: 60, ok: true }] }, { value: 15 });
    expect(modelPeerText(prefill, 'p')).toBe('60.0 ms (ours 4.00 × as fast)');
    expect(sameBeginning('Gravity is a fundamental', 'Gravity is a fundamental concept')).toBe(true);
    expect(sameBeginning('Gravity is a force', 'Gravity is a fundamental concept')).toBe(false);
    expect(sameBeginning('', 'Gravity')).toBe(false);
  });
});

describe('readOptions', () => {
  it('measures everything where nothing is asked for', () => {
    expect(readOptions('')).toMatchObject({ only: [], size: null, peers: null, naive: true, wall: true, tune: true, splits: null, starts: 1, start: false, nothingElse: false });
  });

  it('reads what is asked for', () => {
    const asked = readOptions('?only=minilm,decode&size=small&peers=0&naive=0&splits=64&report=http://localhost/');
    expect(asked).toMatchObject({ only: ['minilm', 'decode'], size: 'small', peers: [], naive: false, splits: 64, starts: 0, start: true });
    expect(asked.given).not.toHaveProperty('report');
    expect(readOptions('?only=none&starts=5')).toMatchObject({ nothingElse: true, starts: 5 });
    expect(readOptions('?size=huge&peers=jax-js')).toMatchObject({ size: null, peers: ['jax-js'] });
    expect(readOptions('?tiles=1&wall=1')).toMatchObject({ tiles: true, peers: [], naive: false, wall: true, starts: 0 });
  });
});

describe('starts of the page as text', () => {
  const start = (/** @type {any} */ visit, /** @type {number} */ ready) => ({
    visit,
    marks: { ready, download: 5 },
    profile: {
      spans: [{ name: 'unpack', at: 30, ms: 12.34 }],
      imports: ['import time:      2000 |       5000 | numpy', 'import time: self [us] | cumulative | imported package'],
    },
  });

  it('lists stages in their order, spans and the longest imports', () => {
    expect(describeStart(start('first', 400))).toEqual([
      'start, first visit; stages began at: download 5, ready 400 ms',
      '      30 to     42:    12.3 ms unpack',
      '  1 imports take 2 ms; the longest (ms by itself, with what it imports):',
      '      2.0     5.0 numpy',
    ]);
  });

  it('gives medians of each kind of visit', () => {
    const starts = [start('first', 400), start('first', 600), start('first', 450), start('profiled', 900)];
    expect(describeMedians(starts)).toEqual(['medians of 3 first visits: download 5, ready 450 ms']);
  });
});
