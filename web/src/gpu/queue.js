/** The device's queue: submits work, and waits for it. */

/**
 * For so many milliseconds a wait polls the GPU process. Chromium's looks for finished work whenever a command reaches
 * it, and otherwise only after 2 ms and then every millisecond: longer than most of our kernels run. A software adapter
 * needs the CPU time that polling takes.
 */
const POLL_MS = { hardware: 10, software: 1.5 };

export class Queue {
  /** Counts submissions and writes, and how many of them are known to be done. */
  #submitted = 0;
  #done = 0;
  #polling = false;
  #device;
  #pollMs;
  #isLost;

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
    this.#device.queue.submit([encoder.finish()]);
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
}
