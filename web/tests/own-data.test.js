import { describe, expect, it } from 'vitest';
import { readTokens } from '../src/panels/own-data-view.js';
import { PARTS, aboutUnknown, readParts } from '../src/parts.js';

describe('parts of a view', () => {
  it('are read from a text or a list, in their own order', () => {
    for (const given of ['links focus', ' focus, links ', ['links', 'focus'], 'links\nfocus focus']) {
      expect(readParts(given)).toEqual({ parts: ['focus', 'links'], unknown: [] });
    }
  });

  it('are all, where none is named', () => {
    for (const given of ['', ' , ', [], null, undefined]) expect(readParts(given)).toEqual({ parts: PARTS, unknown: [] });
  });

  it('that are not known are named', () => {
    expect(readParts('focus Focus')).toEqual({ parts: ['focus'], unknown: ['Focus'] });
    expect(readParts('a b')).toEqual({ parts: PARTS, unknown: ['a', 'b'] });
    expect(aboutUnknown(['a', 'b'])).toMatch(/“a”, “b” are not known/u);
    expect(aboutUnknown([])).toBe('');
  });
});

describe('pasted tokens', () => {
  it('are a JSON list, one a line, or separated by spaces', () => {
    expect(readTokens('["a b", "", "c"]')).toEqual(['a b', '', 'c']);
    expect(readTokens('[CLS]\na b\n\n[SEP]\n')).toEqual(['[CLS]', 'a b', '', '[SEP]']);
    expect(readTokens('a\r\nb\r\n')).toEqual(['a', 'b']);
    expect(readTokens(' one  two ')).toEqual(['one', 'two']);
    expect(readTokens('[CLS] one [SEP]')).toEqual(['[CLS]', 'one', '[SEP]']);
    expect(readTokens(' ')).toEqual([]);
  });
});
