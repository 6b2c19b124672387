/** The device's queue: submits work, and waits for it. */

import { isFirefox } from './adapter.js';

/**
 * For so many milliseconds a wait polls the GPU process. Chromium's looks for finished work whenever a command reaches
 * it, and otherwise only after 2 ms and then every millisecond: longer than most of our kernels run. A software adapter
 * needs the CPU time that polling takes.
 */
const POLL_MS = { hardware: 10, software: 1.5 };

/**
 * Firefox looks for finished work whenever something is submitted, and otherwise only every 100 ms. So a wait submits
 * nothing there, over and over until it ends: first without a pause, after the time above in pauses of this share of the
 * time since a wait last began or ended.
 */
const PAUSE = 1 / 8;
const LONGEST_PAUSE_MS = 20;

export class Queue {
  /** When the last submission began, on the clock of `performance.now()`. */
  submittedAt = 0;
  /** Counts submissions and writes, and how many of them are known to be done. */
  #submitted = 0;
  #done = 0;
  #polling = false;
  #device;
  #pollMs;
  #isLost;
  #needsWaking = isFirefox();
  /** How many waits go on, and when one of them last began or ended. */
  #waits = 0;
  #changed = 0;

  /**
   * @param {GPUDevice} device
   * @param {boolean} software whether the adapter computes on the CPU
   * @param {() => boolean} isLost
   */
  constructor(device, software, isLost) {
    this.#device = device;
    this.#pollMs = POLL_MS[software ? 'software' : 'hardware'];
    this.#isLost = isLost;
  }

  /** @param {GPUCommandEncoder} encoder */
  submit(encoder) {
    const commands = encoder.finish();
    this.submittedAt = performance.now();
    this.#device.queue.submit([commands]);
    this.#submitted++;
  }

  /** @param {GPUBuffer} buffer @param {number} offset @param {Uint8Array<ArrayBuffer>} bytes */
  write(buffer, offset, bytes) {
    this.#device.queue.writeBuffer(buffer, offset, bytes);
    this.#submitted++;
  }

  /** Waits until everything that was submitted is done. */
  async idle() {
    // After a read-back there is nothing left to wait for.
    if (this.#submitted > this.#done) await this.after(this.#device.queue.onSubmittedWorkDone().catch(() => {}));
  }

  /**
   * Waits for a promise that settles once everything that was submitted is done.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   */
  async after(promise) {
    const submitted = this.#submitted;
    const value = await this.polled(promise);
    this.#done = Math.max(this.#done, submitted);
    return value;
  }

  /**
   * Waits for a promise that settles once the GPU has done some work, and polls meanwhile.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   */
  async polled(promise) {
    if (this.#needsWaking) {
      this.#wakeFor(promise);
      return promise;
    }
    let waiting = true;
    const settled = () => {
      waiting = false;
    };
    promise.then(settled, settled);
    // One wait polls for all: more would only keep the GPU process from its work.
    if (this.#polling) return promise;
    this.#polling = true;
    const until = performance.now() + this.#pollMs;
    try {
      while (waiting && !this.#isLost() && performance.now() < until) {
        this.#device.pushErrorScope('validation');
        await this.#device.popErrorScope().catch(settled);
      }
    } finally {
      this.#polling = false;
    }
    return promise;
  }

  /** Has Firefox look for finished work until a promise is settled. @param {Promise<unknown>} promise */
  #wakeFor(promise) {
    const count = (/** @type {number} */ change) => {
      this.#waits += change;
      this.#changed = performance.now();
    };
    count(1);
    const settled = () => count(-1);
    promise.then(settled, settled);
    if (!this.#polling) void this.#wake();
  }

  async #wake() {
    this.#polling = true;
    while (this.#waits && !this.#isLost()) {
      this.#device.queue.submit([]);
      this.#device.pushErrorScope('validation');
      await this.#device.popErrorScope().catch(() => {}); // until Firefox has seen to the submission
      const elapsed = performance.now() - this.#changed;
      const pause = elapsed < this.#pollMs ? 0 : Math.min(PAUSE * elapsed, LONGEST_PAUSE_MS);
      if (pause) await new Promise((done) => setTimeout(done, pause));
    }
    this.#polling = false;
  }
}
