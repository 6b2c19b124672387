/**
 * The params of dispatches in one uniform buffer. Every offset has a bind group of its own: with a dynamic offset the
 * largest prefill tile took 3% longer.
 */

const MOST_GROUPS = 4096;

export class Params {
  /** @type {Map<number, GPUBindGroup>} by offset and size */
  #groups = new Map();
  /** @type {GPUBuffer | null} */
  #buffer = null;
  #device;
  #layout;
  #room;

  /**
   * @param {GPUDevice} device
   * @param {GPUBindGroupLayout} layout of one uniform buffer
   * @param {(bytes: number) => number} [room] how large a new buffer is that has to hold so many bytes
   */
  constructor(device, layout, room = (bytes) => bytes) {
    this.#device = device;
    this.#layout = layout;
    this.#room = room;
  }

  /** Sets the params of what is submitted next. @param {Uint8Array<ArrayBuffer>} bytes */
  write(bytes) {
    if (!this.#buffer || bytes.byteLength > this.#buffer.size) {
      this.destroy();
      this.#buffer = this.#device.createBuffer({
        label: 'params',
        size: this.#room(bytes.byteLength),
        usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      });
    }
    // The queue orders this write after every earlier submission, so one buffer serves them all.
    this.#device.queue.writeBuffer(this.#buffer, 0, bytes);
  }

  /** The bind group of a dispatch's params. @param {number} offset @param {number} size in bytes, at most 65,536 */
  group(offset, size) {
    if (!this.#buffer) throw new Error('no params were written');
    const key = offset * 0x1_0000 + size; // offsets are multiples of 256
    let group = this.#groups.get(key);
    if (!group) {
      group = this.#device.createBindGroup({
        layout: this.#layout,
        entries: [{ binding: 0, resource: { buffer: this.#buffer, offset, size } }],
      });
      if (this.#groups.size === MOST_GROUPS) this.#groups.clear();
      this.#groups.set(key, group);
    }
    return group;
  }

  destroy() {
    this.#buffer?.destroy();
    this.#buffer = null;
    this.#groups.clear();
  }
}
