/**
 * The params of dispatches in one uniform buffer. Every offset has a bind group of its own: with a dynamic offset the
 * largest prefill tile took 3% longer. Dispatches whose params are equal read them from the same place: there the GPU's
 * cores still have them, elsewhere they wait for memory (0.2 to 0.4 µs, bench/NOTES.md).
 */

const MOST_GROUPS = 4096;

/** @typedef {{ offset: number, size: number }} Block the params of a dispatch, in bytes: multiples of 4 */

export class Params {
  /** @type {Map<number, GPUBindGroup>} by offset and size */
  #groups = new Map();
  /** Where the params of a block are found, by its offset. @type {Map<number, number>} */
  #places = new Map();
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

  /**
   * Sets the params of what is submitted next.
   * @param {Uint8Array<ArrayBuffer>} bytes
   * @param {readonly Block[]} blocks of all dispatches
   */
  write(bytes, blocks) {
    this.#places = placesOf(bytes, blocks);
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

  /** The bind group of a dispatch's params, whose size is at most 65,536. @param {Block} block one of those written */
  group(block) {
    if (!this.#buffer) throw new Error('no params were written');
    const { size } = block;
    const offset = this.#places.get(block.offset) ?? block.offset;
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

/**
 * By the offset of each block that of the first one with the same bytes.
 * @param {Uint8Array} bytes @param {readonly Block[]} blocks
 * @returns {Map<number, number>}
 */
function placesOf(bytes, blocks) {
  // By words: by bytes it takes three times as long.
  const words = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const places = new Map();
  /** @type {Map<number, Block[]>} those that differ, by a hash of their words */
  const different = new Map();
  for (const block of blocks) {
    const hash = hashOf(words, block);
    const others = different.get(hash) ?? [];
    const first = others.find((other) => areEqual(words, other, block));
    if (!first) different.set(hash, [...others, block]);
    places.set(block.offset, (first ?? block).offset);
  }
  return places;
}

/** As FNV-1a. @param {DataView} words @param {Block} block */
function hashOf(words, { offset, size }) {
  let hash = 0x811c9dc5;
  for (let at = offset; at < offset + size; at += 4) hash = Math.imul(hash ^ words.getUint32(at), 0x01000193);
  return hash;
}

/** @param {DataView} words @param {Block} a @param {Block} b */
function areEqual(words, a, b) {
  if (a.size !== b.size) return false;
  for (let n = 0; n < a.size; n += 4) if (words.getUint32(a.offset + n) !== words.getUint32(b.offset + n)) return false;
  return true;
}
