import { describe, expect, it } from 'vitest';
import { Runner } from '../src/gpu/runner.js';

/** A submission takes so long, and the GPU works meanwhile. */
const SUBMIT_MS = 3;

/** Devices and their parts that only write down what they are asked. */
function recording() {
  /** @type {any[]} */
  const log = [];
  const pass = {
    setPipeline: (/** @type {any} */ pipeline) => log.push(['pipeline', pipeline]),
    setBindGroup: (/** @type {number} */ index, /** @type {any} */ group) => log.push(['group', index, group]),
    dispatchWorkgroups: (/** @type {number[]} */ ...grid) => log.push(['dispatch', ...grid]),
    end: () => log.push(['end']),
  };
  const device = {
    features: new Set(),
    queue: { onSubmittedWorkDone: async () => {} },
    createCommandEncoder: () => ({ beginComputePass: () => pass }),
  };
  const errors = { guarded: (/** @type {string} */ label, /** @type {any} */ _, /** @type {() => void} */ work) => [log.push(['guarded', label]), work()] };
  const queue = {
    submittedAt: 0,
    submit() {
      this.submittedAt = performance.now();
      log.push(['submit']);
      while (performance.now() < this.submittedAt + SUBMIT_MS);
    },
  };
  const bindings = {
    groups: (/** @type {any} */ { pipeline, buffers, offset, size }, /** @type {string} */ params) => [
      `${pipeline.label}: ${buffers}`,
      `${params} ${offset} ${size}`,
    ],
  };
  const runner = new Runner(.../** @type {[any, any, any, any]} */ ([device, errors, queue, bindings]));
  /** A program of these words. */
  const program = () => ({
    dispatches: runner.decode(words, pipelines),
    params: /** @type {any} */ ('params'),
  });
  return { log, runner, program };
}

const pipelines = new Map([1, 2].map((handle) => [handle, /** @type {any} */ ({ pipeline: `p${handle}`, label: `kernel ${handle}` })]));
const words = Uint32Array.from([1, 16, 4, 1, 1, 1, 9, 0, 64, 2, 32, 2, 3, 1, 0]);
const first = [['pipeline', 'p1'], ['group', 0, 'kernel 1: 9,0,64'], ['group', 1, 'params 0 16'], ['dispatch', 4, 1, 1]];
const second = [['pipeline', 'p2'], ['group', 0, 'kernel 2: '], ['group', 1, 'params 256 32'], ['dispatch', 2, 3, 1]];

describe('Runner', () => {
  it('encodes all dispatches of a program in one pass, in their order', () => {
    const { log, runner, program } = recording();
    runner.run(program());
    expect(log).toEqual([['guarded', 'kernel 1'], ...first, ...second, ['end'], ['submit']]);
  });

  it('encodes a program that runs several times in one pass, and submits it once', () => {
    const { log, runner, program } = recording();
    runner.run(program(), { times: 3 });
    const once = [...first, ...second];
    expect(log).toEqual([['guarded', 'kernel 1'], ...once, ...once, ...once, ['end'], ['submit']]);
  });

  it('times every dispatch by itself, or all together', async () => {
    for (const [together, count] of /** @type {const} */ ([[false, 2], [true, 1]])) {
      const { log, runner, program } = recording();
      const timings = await runner.time(program(), together);
      expect(timings).toHaveLength(count);
      for (const [gpu] of timings) expect(gpu).toBeNull();
      expect(timings[0][1], 'from before the submission').toBeGreaterThanOrEqual(1000 * SUBMIT_MS);
      for (const [, wall] of timings) expect(wall).toBeGreaterThanOrEqual(0);
      expect(log.filter(([what]) => what === 'submit')).toHaveLength(count);
    }
  });

  it('times what it runs several times over', async () => {
    const { log, runner, program } = recording();
    expect(await runner.time(program(), true, 3)).toHaveLength(1);
    expect(log.filter(([what]) => what === 'dispatch')).toHaveLength(6);
    expect(log.filter(([what]) => what === 'submit')).toHaveLength(1);
  });

  it('names a pipeline that it does not know', () => {
    const { runner } = recording();
    expect(() => runner.decode(Uint32Array.from([5, 0, 1, 1, 1, 0]), pipelines)).toThrow('no pipeline 5');
  });
});
