/**
 * The params of dispatches in one uniform buffer, of which each dispatch binds a part: with a dynamic offset the largest
 * prefill tile took 3% longer. Dispatches whose params are equal read them from the same place: there the GPU's cores
 * still have them, elsewhere they wait for memory (0.2 to 0.4 µs, bench/NOTES.md).
 */

/** @typedef {{ offset: number, size: number }} Block the params of a dispatch, in bytes: multiples of 4 */

export class Params {
  /** Where the params of a block are found, by its offset. @type {Map<number, number>} */
  #places = new Map();
  /** @type {GPUBuffer | null} */
  #buffer = null;
  #device;
  #room;

  /**
   * @param {GPUDevice} device
   * @param {(bytes: number) => number} [room] how large a new buffer is that has to hold so many bytes
   */
  constructor(device, room = (bytes) => bytes) {
    this.#device = device;
    this.#room = room;
  }

  /** @returns {GPUBuffer} */
  get buffer() {
    if (!this.#buffer) throw new Error('no params were written');
    return this.#buffer;
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

  /** The offset at which the params of a block are read. @param {Block} block one of those written */
  placeOf({ offset }) {
    return this.#places.get(offset) ?? offset;
  }

  destroy() {
    this.#buffer?.destroy();
    this.#buffer = null;
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
