/** A pair of GPU timestamps for each of some compute passes. */
export class Clock {
  #device;
  #count;
  #queries;

  /** @param {GPUDevice} device @param {number} count */
  constructor(device, count) {
    this.#device = device;
    this.#count = count;
    this.#queries = device.createQuerySet({ type: 'timestamp', count: 2 * count });
  }

  /** @param {number} index @returns {GPUComputePassTimestampWrites} */
  writes(index) {
    return { querySet: this.#queries, beginningOfPassWriteIndex: 2 * index, endOfPassWriteIndex: 2 * index + 1 };
  }

  /** @returns {Promise<number[]>} microseconds per pass */
  async read() {
    const size = 16 * this.#count;
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    const resolved = this.#device.createBuffer({ size, usage });
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    encoder.resolveQuerySet(this.#queries, 0, 2 * this.#count, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
      const ticks = new BigInt64Array(staging.getMappedRange());
      return Array.from({ length: this.#count }, (_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1000);
    } finally {
      for (const resource of [resolved, staging, this.#queries]) resource.destroy();
    }
  }
}
