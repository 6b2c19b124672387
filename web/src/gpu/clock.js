/** Passes of one query set: WebGPU allows 4,096 queries in each. */
const PASSES = 2048;

/** A pair of GPU timestamps for each of some compute passes. */
export class Clock {
  #device;
  #count;
  #queries;

  /** @param {GPUDevice} device @param {number} count */
  constructor(device, count) {
    this.#device = device;
    this.#count = count;
    this.#queries = Array.from({ length: Math.ceil(count / PASSES) }, (_, n) =>
      device.createQuerySet({ type: 'timestamp', count: 2 * Math.min(PASSES, count - n * PASSES) }),
    );
  }

  /** @param {number} index @returns {GPUComputePassTimestampWrites} */
  writes(index) {
    const begin = 2 * (index % PASSES);
    return { querySet: this.#queries[Math.floor(index / PASSES)], beginningOfPassWriteIndex: begin, endOfPassWriteIndex: begin + 1 };
  }

  /** @returns {Promise<number[]>} microseconds per pass */
  async read() {
    const size = 16 * this.#count;
    const usage = GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC;
    const resolved = this.#device.createBuffer({ size, usage });
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    this.#queries.forEach((queries, n) => encoder.resolveQuerySet(queries, 0, queries.count, resolved, 16 * PASSES * n));
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
      const ticks = new BigInt64Array(staging.getMappedRange());
      return Array.from({ length: this.#count }, (_, i) => Number(ticks[2 * i + 1] - ticks[2 * i]) / 1000);
    } finally {
      for (const resource of [resolved, staging, ...this.#queries]) resource.destroy();
    }
  }
}
