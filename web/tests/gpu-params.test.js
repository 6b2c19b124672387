import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Params } from '../src/gpu/params.js';

vi.stubGlobal('GPUBufferUsage', { UNIFORM: 1, COPY_DST: 2 });

/** @type {any} */
let device;
beforeEach(() => {
  device = {
    createBuffer: vi.fn(({ size }) => ({ size, destroy: vi.fn() })),
    queue: { writeBuffer: vi.fn() },
  };
});
const made = (/** @type {number} */ index) => device.createBuffer.mock.results[index].value;

/** Blocks of so many bytes, 256 apart. */
const blocks = (/** @type {number[]} */ ...sizes) => sizes.map((size, n) => ({ offset: 256 * n, size }));

describe('Params', () => {
  it('writes to one buffer', () => {
    const params = new Params(device);
    params.write(new Uint8Array(512), blocks(64, 48));
    params.write(new Uint8Array(512), blocks(64, 48));
    expect(device.createBuffer).toHaveBeenCalledTimes(1);
    expect(device.queue.writeBuffer).toHaveBeenCalledTimes(2);
    expect(params.buffer).toBe(made(0));
  });

  it('finds equal params in one place, until they differ', () => {
    const params = new Params(device);
    const all = blocks(32, 32, 48, 32, 32);
    const places = () => all.map((block) => params.placeOf(block) / 256);
    const bytes = new Uint8Array(5 * 256);
    bytes[3 * 256 + 31] = 1;
    bytes[256 + 32] = 1; // not of the block
    params.write(bytes, all);
    expect(places(), 'the third is longer, the fourth differs in its last byte').toEqual([0, 0, 2, 3, 0]);
    bytes[0] = 1;
    params.write(bytes, all);
    expect(places()).toEqual([0, 1, 2, 3, 1]);
    expect(device.queue.writeBuffer.mock.lastCall[2]).toBe(bytes);
  });

  it('tells params of the same hash apart', () => {
    const params = new Params(device);
    const bytes = new Uint8Array(512);
    // Found by trying; the hash of both is -929445110.
    bytes.set(new TextEncoder().encode('383548885196'), 0);
    bytes.set(new TextEncoder().encode('339488170012'), 256);
    params.write(bytes, blocks(12, 12));
    expect(params.placeOf({ offset: 256, size: 12 })).toBe(256);
  });

  it('makes room for more', () => {
    const params = new Params(device, (bytes) => 2 * bytes);
    params.write(new Uint8Array(256), blocks(16));
    params.write(new Uint8Array(1024), blocks(16));
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(made(1).size).toBe(2048);
    expect(params.buffer).toBe(made(1));
  });

  it('keeps nothing once it is destroyed', () => {
    const params = new Params(device);
    params.destroy();
    params.write(new Uint8Array(256), blocks(16));
    params.destroy();
    params.destroy();
    expect(made(0).destroy).toHaveBeenCalledTimes(1);
    expect(() => params.buffer).toThrow('no params were written');
  });
});
