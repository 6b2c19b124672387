import { afterEach, expect, test, vi } from 'vitest';

import { keepText, keptText } from '../src/storage.js';

afterEach(() => vi.unstubAllGlobals());

test('a text is kept until it is emptied', () => {
  const texts = new Map();
  const storage = {
    setItem: texts.set.bind(texts),
    getItem: (/** @type {string} */ name) => texts.get(name) ?? null,
    removeItem: texts.delete.bind(texts),
  };
  vi.stubGlobal('sessionStorage', storage);
  keepText('edit', 'score * 2', 'sessionStorage');
  expect(keptText('edit', 'sessionStorage')).toBe('score * 2');
  keepText('edit', '', 'sessionStorage');
  expect(keptText('edit', 'sessionStorage')).toBe('');
  expect(texts.size).toBe(0);
});

test('a browser that forbids storage keeps nothing and raises nothing', () => {
  const refuse = () => {
    throw new Error('SecurityError');
  };
  vi.stubGlobal('localStorage', { setItem: refuse, getItem: refuse, removeItem: refuse });
  keepText('theme', 'dark');
  expect(keptText('theme')).toBe('');
});
