import { beforeEach, expect, it, vi } from 'vitest';
import { ReadBacks } from '../src/gpu/read-backs.js';

vi.stubGlobal('GPUBufferUsage', { MAP_READ: 1, COPY_DST: 8 });

const MIB = 1 << 20;
/** @type {any} */
let device;
/** @type {ReadBacks} */
let readBacks;

beforeEach(() => {
  device = { createBuffer: vi.fn(({ size }) => ({ size, unmap: vi.fn(), destroy: vi.fn() })) };
  readBacks = new ReadBacks(device);
});

it('hands a buffer out again once it is released', () => {
  const first = readBacks.take(100);
  expect(readBacks.take(100)).not.toBe(first);
  readBacks.release(first);
  expect(first.unmap).toHaveBeenCalledTimes(1);
  expect(readBacks.take(3000)).toBe(first);
  expect(device.createBuffer).toHaveBeenCalledTimes(2);
});

it('takes room for the size, and no more than twice that above the least', () => {
  for (const size of [4, 4096, 4100, 65_536, 65_540, 16 * MIB, 16 * MIB + 4, 100 * MIB]) {
    const room = readBacks.take(size).size;
    expect(room).toBeGreaterThanOrEqual(size);
    expect(room).toBeLessThanOrEqual(Math.max(4096, 2 * size - 4));
  }
});

it('keeps no large buffer, and only the newest of many', () => {
  const large = readBacks.take(17 * MIB);
  readBacks.release(large);
  expect(large.destroy).toHaveBeenCalledTimes(1);
  const several = Array.from({ length: 5 }, () => readBacks.take(8 * MIB));
  for (const each of several) readBacks.release(each);
  expect(several.map((each) => vi.mocked(each.destroy).mock.calls.length)).toEqual([1, 0, 0, 0, 0]);
});
