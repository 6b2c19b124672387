/** The device's queue: submits work, and waits for it. */

import { isFirefox } from './adapter.js';

/**
 * For so many milliseconds after a wait last began or ended the GPU process is polled. Chromium's looks for finished work whenever a command reaches
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

  /** Whether something was submitted that is not known to be done. After a read-back there is nothing left to wait for. */
  get isBusy() {
    return this.#submitted > this.#done;
  }

  /** Waits until everything that was submitted is done. */
  async idle() {
    if (this.isBusy) await this.after(this.#device.queue.onSubmittedWorkDone().catch(() => {}));
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
   * Waits for a promise that settles once the GPU has done some work, and meanwhile has the browser look for it.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T>}
   */
  polled(promise) {
    const count = (/** @type {number} */ change) => {
      this.#waits += change;
      this.#changed = performance.now();
    };
    count(1);
    const settled = () => count(-1);
    promise.then(settled, settled);
    // One loop looks for all waits: more would only keep the GPU process from its work.
    if (!this.#polling) void (this.#needsWaking ? this.#wake() : this.#poll());
    // Not after the loop, whose last look may still be on its way.
    return promise;
  }

  async #poll() {
    this.#polling = true;
    while (this.#waits && !this.#isLost() && performance.now() < this.#changed + this.#pollMs) await this.#look();
    this.#polling = false;
  }

  async #wake() {
    this.#polling = true;
    while (this.#waits && !this.#isLost()) {
      this.#device.queue.submit([]);
      await this.#look(); // until Firefox has seen to the submission
      const elapsed = performance.now() - this.#changed;
      const pause = elapsed < this.#pollMs ? 0 : Math.min(PAUSE * elapsed, LONGEST_PAUSE_MS);
      if (pause) await new Promise((done) => setTimeout(done, pause));
    }
    this.#polling = false;
  }

  /** Sends the GPU process a command, and waits for its answer. */
  async #look() {
    this.#device.pushErrorScope('validation');
    await this.#device.popErrorScope().catch(() => {});
  }
}
