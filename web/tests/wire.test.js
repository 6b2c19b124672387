import { describe, expect, it } from 'vitest';
import { bytesOf, pack, unpack } from '../src/embed/wire.js';

describe('pack and unpack', () => {
  it('bring nested data with arrays through JSON and back', () => {
    const value = {
      text: 'a',
      nothing: null,
      list: [1, { deep: Float32Array.of(1.5, -2) }],
      bytes: Uint8Array.of(1, 2, 3),
      wide: BigInt64Array.of(-5n),
    };
    /** @type {ArrayBufferView[]} */
    const buffers = [];
    const message = JSON.parse(JSON.stringify(pack(value, buffers)));
    expect(buffers).toHaveLength(3);
    expect(unpack(message, buffers)).toEqual(value);
  });

  it('read an array that lies at an odd offset', () => {
    const bytes = new Uint8Array(9);
    bytes.set(new Uint8Array(Float32Array.of(3, 4).buffer), 1);
    const at = { $buffer: 0, dtype: 'float32', shape: [2] };
    expect(unpack(at, [bytes.subarray(1)])).toEqual(Float32Array.of(3, 4));
  });

  it('give float16 as its bits and bool as bytes', () => {
    const buffer = Uint8Array.of(0, 60).buffer;
    expect(unpack({ $buffer: 0, dtype: 'float16', shape: [1] }, [buffer])).toEqual(Uint16Array.of(0x3c00));
    expect(unpack({ $buffer: 0, dtype: 'bool', shape: [2] }, [buffer])).toEqual(Uint8Array.of(0, 60));
  });

  it('name a type that is not known', () => {
    expect(() => unpack({ $buffer: 0, dtype: 'complex64', shape: [1] }, [new ArrayBuffer(8)])).toThrow('complex64');
  });
});

describe('bytesOf', () => {
  it('sees the bytes of whatever a host delivers', () => {
    const whole = Uint8Array.of(1, 2, 3, 4);
    expect(bytesOf(null)).toEqual(new Uint8Array());
    expect(bytesOf(whole.buffer)).toEqual(whole);
    expect(bytesOf(new DataView(whole.buffer, 1, 2))).toEqual(Uint8Array.of(2, 3));
  });
});
