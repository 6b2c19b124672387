import { afterEach, describe, expect, it, vi } from 'vitest';
import { canKeepFiles, forgetFiles, keepFile, keptFile } from '../src/kept-files.js';
import { fakeFiles } from './fake-files.js';

afterEach(() => void vi.unstubAllGlobals());

describe('files that are kept', () => {
  it('are read as they were written, by name and version', async () => {
    fakeFiles();
    expect(await canKeepFiles()).toBe(true);
    await keepFile('a', '1', Uint8Array.of(1, 2, 3));
    await keepFile('ab', '1', Uint8Array.of());
    expect(await (await keptFile('a', '1'))?.()).toEqual(Uint8Array.of(1, 2, 3));
    expect(await (await keptFile('ab', '1'))?.()).toEqual(Uint8Array.of());
    expect(await keptFile('a', '2')).toBeUndefined();
  });

  it('take the place of earlier versions', async () => {
    const files = fakeFiles();
    await keepFile('a', '1', Uint8Array.of(1));
    await keepFile('ab', '1', Uint8Array.of(2));
    await keepFile('a', '2', Uint8Array.of(3));
    expect([...files.keys()]).toEqual(['ab 1', 'a 2']);
    await forgetFiles();
    expect([...files.keys()]).toEqual([]);
  });

  it.each([
    ['empty', []],
    ['without its length', [0, 0, 0, 0, 1, 2, 3]],
    ['shorter than its length', [3, 0, 0, 0, 1, 2]],
  ])('are refused, and removed, when they are %s', async (_, bytes) => {
    const files = fakeFiles();
    files.set('a 1', Uint8Array.from(bytes));
    const read = await keptFile('a', '1');
    await expect(read?.()).rejects.toThrow('a 1 was not written to its end');
    expect([...files.keys()]).toEqual([]);
  });

  it('are none where the browser has no such files, or forbids them', async () => {
    for (const storage of [undefined, {}, { getDirectory: async () => Promise.reject(new DOMException('', 'SecurityError')) }]) {
      vi.stubGlobal('navigator', { storage });
      expect(await canKeepFiles()).toBe(false);
      await keepFile('a', '1', Uint8Array.of(1));
      expect(await keptFile('a', '1')).toBeUndefined();
    }
  });
});
