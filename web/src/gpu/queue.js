/** The device's queue: hands work over, and knows how to wait for it. */

/**
 * For so long a wait asks the GPU process over and over. Chromium's looks for finished work when commands
 * reach it, and otherwise 2 ms later and then every millisecond: longer than most of our kernels run. A
 * software adapter needs the processor that asking takes.
 */
const ASK_MS = { hardware: 10, software: 1.5 };

export class Queue {
  /** How often work was handed over, and up to which of these times it is known to be done. */
  #given = 0;
  #done = 0;
  #device;
  #askMs;
  #isLost;

  /**
   * @param {GPUDevice} device
   * @param {boolean} software whether the adapter computes on the processor
   * @param {() => boolean} isLost
   */
  constructor(device, software, isLost) {
    this.#device = device;
    this.#askMs = ASK_MS[software ? 'software' : 'hardware'];
    this.#isLost = isLost;
  }

  /** @param {GPUCommandEncoder} encoder */
  submit(encoder) {
    this.#device.queue.submit([encoder.finish()]);
    this.#given++;
  }

  /** @param {GPUBuffer} buffer @param {number} offset @param {Uint8Array<ArrayBuffer>} bytes */
  write(buffer, offset, bytes) {
    this.#device.queue.writeBuffer(buffer, offset, bytes);
    this.#given++;
  }

  /** Waits until everything that was handed over is done. */
  async idle() {
    // After a read-back there is nothing left to wait for.
    if (this.#given > this.#done) await this.after(this.#device.queue.onSubmittedWorkDone().catch(() => {}));
  }

  /**
   * Waits for something that happens once everything that was handed over is done.
   * @template T
   * @param {Promise<T>} happens
   * @returns {Promise<T>}
   */
  async after(happens) {
    const given = this.#given;
    const value = await this.hurried(happens);
    this.#done = Math.max(this.#done, given);
    return value;
  }

  /**
   * Waits for something that happens once the GPU has done some work.
   * @template T
   * @param {Promise<T>} happens
   * @returns {Promise<T>}
   */
  async hurried(happens) {
    let waiting = true;
    const settled = () => {
      waiting = false;
    };
    happens.then(settled, settled);
    const until = performance.now() + this.#askMs;
    while (waiting && !this.#isLost() && performance.now() < until) {
      this.#device.pushErrorScope('validation');
      await this.#device.popErrorScope().catch(settled);
    }
    return happens;
  }
}
