/** Encodes the dispatches of a program and hands them to the queue, timed or not. */

import { Clock } from './clock.js';
import { decodeWords } from './words.js';

/**
 * @typedef {import('./pipelines.js').Pipeline} Pipeline
 * @typedef {{ buffer: GPUBuffer, place: number, groups: GPUBindGroup[] }} Bound where params lay last, and the bind groups for that
 * @typedef {Omit<import('./words.js').DispatchRecord, 'pipeline'> & { pipeline: Pipeline, bound?: Bound }} Dispatch
 * @typedef {{ dispatches: Dispatch[], params: import('./params.js').Params }} Program
 * @typedef {[gpu: number | null, wall: number]} Timing microseconds
 */

export class Runner {
  #device;
  #errors;
  #queue;
  #bindings;

  /**
   * @param {GPUDevice} device
   * @param {import('./errors.js').Errors} errors
   * @param {import('./queue.js').Queue} queue
   * @param {import('./bindings.js').Bindings} bindings
   */
  constructor(device, errors, queue, bindings) {
    this.#device = device;
    this.#errors = errors;
    this.#queue = queue;
    this.#bindings = bindings;
  }

  /** @param {Uint32Array} words @param {ReadonlyMap<number, Pipeline>} pipelines by their handles @returns {Dispatch[]} */
  decode(words, pipelines) {
    return decodeWords(words).map(({ pipeline: handle, ...rest }) => {
      const pipeline = pipelines.get(handle);
      if (!pipeline) throw new Error(`no pipeline ${handle}`);
      return { pipeline, ...rest };
    });
  }

  /**
   * Submits all dispatches, `times` times over, in one compute pass.
   * @param {Program} program whose params were written
   * @param {{ times?: number, descriptor?: GPUComputePassDescriptor }} [options]
   */
  run({ dispatches, params }, { times = 1, descriptor } = {}) {
    this.#errors.guarded(dispatches[0]?.pipeline.label ?? 'program', ['validation'], () => {
      const encoder = this.#device.createCommandEncoder();
      const pass = encoder.beginComputePass(descriptor);
      for (let run = 0; run < times; run++) {
        for (const dispatch of dispatches) this.#encode(pass, dispatch, params);
      }
      pass.end();
      this.#queue.submit(encoder);
    });
  }

  /**
   * Submits each dispatch by itself, or all of them together, with timestamps where the device has them.
   * @param {Program} program whose params were written
   * @param {boolean} together
   * @param {number} [times] how many times over each submission runs what it has
   * @returns {Promise<Timing[]>} one for each submission
   */
  async time({ dispatches, params }, together, times = 1) {
    const passes = together ? [dispatches] : dispatches.map((dispatch) => [dispatch]);
    const clock = this.#device.features.has('timestamp-query') ? new Clock(this.#device, passes.length) : null;
    /** @type {Promise<number>[]} */
    const walls = [];
    let before = Promise.resolve(0);
    passes.forEach((timed, index) => {
      this.run({ dispatches: timed, params }, { times, ...(clock && { descriptor: { timestampWrites: clock.writes(index) } }) });
      // not the time now: the GPU may have begun, or ended, before this thread goes on
      const submitted = this.#queue.submittedAt;
      const done = this.#device.queue.onSubmittedWorkDone().then(() => performance.now());
      walls.push(Promise.all([before, done]).then(([earlier, now]) => (now - Math.max(submitted, earlier)) * 1000));
      before = done;
    });
    const gpu = clock ? clock.read() : passes.map(() => null);
    const [ticks, wall] = await Promise.all([gpu, Promise.all(walls)]);
    return wall.map((us, index) => [ticks[index], us]);
  }

  /** @param {GPUComputePassEncoder} pass @param {Dispatch} dispatch @param {Program['params']} params */
  #encode(pass, dispatch, params) {
    pass.setPipeline(dispatch.pipeline.pipeline);
    this.#bindings.groups(dispatch, params).forEach((group, index) => pass.setBindGroup(index, group));
    pass.dispatchWorkgroups(...dispatch.grid);
  }
}
