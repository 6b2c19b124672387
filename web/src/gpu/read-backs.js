/** The buffers through which results are read back. */

/**
 * Buffers are kept for the next read-back: for a driver, to make and to free one that can be mapped is most of the time
 * that a small read-back takes (bench/NOTES.md). Those above the first size are not; all kept ones have at most the
 * second in all.
 */
const MOST_OF_ONE = 16 << 20;
const MOST_OF_ALL = 32 << 20;
const LEAST = 4 << 10;

export class ReadBacks {
  /** Buffers that are neither mapped nor in use, the one that was used last at the end. @type {GPUBuffer[]} */
  #kept = [];
  #device;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
  }

  /** A buffer of at least `size` bytes that can be mapped. @param {number} size @returns {GPUBuffer} */
  take(size) {
    // Few sizes, each a power of two, so that a kept one often fits.
    const room = size > MOST_OF_ONE ? size : Math.max(LEAST, 2 ** Math.ceil(Math.log2(size)));
    const found = this.#kept.findIndex((buffer) => buffer.size === room);
    if (found >= 0) return this.#kept.splice(found, 1)[0];
    const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
    return this.#device.createBuffer({ label: `read-back of ${size} bytes`, size: room, usage });
  }

  /** Keeps a mapped buffer for later, or destroys it. @param {GPUBuffer} buffer */
  release(buffer) {
    if (buffer.size > MOST_OF_ONE) {
      buffer.destroy();
      return;
    }
    buffer.unmap();
    this.#kept.push(buffer);
    while (this.#kept.reduce((sum, { size }) => sum + size, 0) > MOST_OF_ALL) this.#kept.shift()?.destroy();
  }
}
