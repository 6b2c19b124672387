import { describe, expect, it } from 'vitest';
import { formatFigure, formatFlops, formatRate, formatShare } from '../src/bench/figures.js';
import {
  describeFailure,
  formatBytes,
  formatCount,
  formatError,
  formatTime,
  formatToken,
  formatWeight,
  shortError,
  timeColumn,
} from '../src/format.js';

describe('figures of the page', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1 kB'],
    [1_500_000, '1.5 MB'],
    [90_868_376, '91 MB'],
  ])('formats %d bytes as %s', (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  it.each([
    [0.4, '< 1 µs'],
    [1.26, '1.3 µs'],
    [9.97, '10 µs'],
    [42.4, '42 µs'],
    [999.4, '999 µs'],
    [999.6, '1.00 ms'],
    [1234, '1.23 ms'],
    [9997, '10.0 ms'],
    [12_345, '12.3 ms'],
    [99_970, '100 ms'],
    [123_456, '123 ms'],
    [999_600, '1.00 s'],
    [2_500_000, '2.50 s'],
  ])('formats %d µs as %s', (us, text) => expect(formatTime(us)).toBe(text));

  it.each([
    [4.7, 1.2, 4.7, '1.2 µs', '1.2–4.7 µs'],
    [999, 1.2, 600, '1.2 µs', '1.2–600 µs'],
    [1500, 500, 1500, '0.50 ms', '0.50–1.50 ms'],
    [30_000, 2, 30_000, '< 0.01 ms', '< 0.01–30.0 ms'],
    [2e6, 1e5, 123_456_789, '0.10 s', '0.10–123 s'],
    [0, 0, 0, '0.0 µs', '0.0–0.0 µs'],
  ])('writes a column up to %d µs in one unit: %d to %d', (largest, low, high, time, range) => {
    const column = timeColumn(largest);
    expect([column.time(low), column.range(low, high)]).toEqual([time, range]);
  });

  it.each([
    [0, '0'],
    [0.25, '0.2500'],
    [-0.03, '−0.0300'],
    [0.000012, '1.2e-5'],
    [-0.000012, '−1.2e-5'],
  ])('formats the weight %d as %s', (weight, text) => expect(formatWeight(weight)).toBe(text));

  it('formats errors, counts and tokens', () => {
    expect(formatError(0)).toBe('0');
    expect(formatError(1.23e-7)).toBe('1.2e-7');
    expect(formatCount(1_234_567)).toBe('1,234,567');
    expect(formatToken('')).toBe('∅');
    expect(formatToken('a b\n')).toBe('a␣b␣');
  });

  it('takes from a traceback what happened', () => {
    const traceback = 'Traceback (most recent call last):\n  File "x.py"\npy_attn.errors.ShaderError: line 3: no\n';
    expect(shortError(new Error(traceback))).toBe('line 3: no');
    expect(shortError('ValueError: heads must be positive')).toBe('heads must be positive');
    expect(shortError('plain words')).toBe('plain words');
    const lack = `${traceback}pa.GPUOutOfMemoryError: x of 8 bytes: no room.\n - While calling CreateBuffer.\n (2 more errors)\n`;
    expect(shortError(new Error(lack))).toBe('x of 8 bytes: no room.');
  });
});

describe('failures of downloads', () => {
  it.each([
    ['minilm: the server answered 404 Not Found for /m', 'The model file is missing (404).'],
    ['minilm: the server answered 503 Busy for /m', 'The model file could not be sent by the server (503).'],
    ['minilm: no connection to host (Failed to fetch)', 'The model file could not be loaded: there is no connection to the server.'],
    ['minilm: the download ended after 5 of 90 bytes', 'The model file did not arrive whole (the download ended after 5 of 90 bytes).'],
    ['minilm: the download broke off after 5 of 90 bytes (x)', 'The model file did not arrive whole (the download broke off after 5 of 90 bytes).'],
    ["m: the file's SHA-256 is a, expected b", "The model file is not the one that was expected (m: the file's SHA-256 is a, expected b)."],
    ['out of memory', 'The model file could not be loaded: out of memory'],
  ])('says of %s: %s', (message, said) => expect(describeFailure(new Error(message), 'The model file')).toBe(said));
});

describe('figures of the bench', () => {
  it.each([
    [1234.5, '1,235'],
    [123.45, '123'],
    [12.345, '12.3'],
    [1.2345, '1.23'],
    [0.0123, '0.01'],
    [0.00123, '0.0012'],
  ])('formats %d as %s', (value, text) => expect(formatFigure(value)).toBe(text));

  it('chooses the unit of a rate', () => {
    expect(formatFlops(0.05)).toBe('50.0 GFLOP/s');
    expect(formatFlops(44.9)).toBe('44.9 TFLOP/s');
    expect(formatRate(4240, /** @type {any} */ ({ bytes: 1 }))).toBe('4,240 GB/s');
    expect(formatRate(4.24, /** @type {any} */ ({ bytes: null }))).toBe('4.24 TFLOP/s');
  });

  it('formats shares, and nothing where there is none', () => {
    expect([formatShare(0.734), formatShare(0.0123), formatShare(null), formatShare(undefined)]).toEqual(['73%', '1.2%', '', '']);
  });
});
