import { describe, expect, it } from 'vitest';
import { EXAMPLES, exampleShown, fileOf } from '../src/first/examples.js';
import { GLOSSARY } from '../src/glossary.js';
import { createStore } from '../src/store.js';
import { mentions } from '../src/term.js';

const words = (/** @type {string} */ sentence, /** @type {any[]} */ ...names) =>
  mentions(sentence, names).map(({ name, from, to }) => [name, sentence.slice(from, to)]);

describe('terms in a sentence', () => {
  it('are found where they stand first, in the order of the sentence', () => {
    expect(words('Every row is one query’s softmax over 20 keys; keys count.', 'key', 'softmax', 'query')).toEqual([
      ['query', 'query'],
      ['softmax', 'softmax'],
      ['key', 'keys'],
    ]);
  });

  it('are whole words, or their plurals', () => {
    expect(words('A score_mod of the scores', 'score')).toEqual([['score', 'scores']]);
    expect(words('false keyboards, a monkey', 'LSE', 'key')).toEqual([]);
    expect(words('Head and head', 'head')).toEqual([['head', 'Head']]);
  });

  it('may be marks', () => {
    expect(words('pieces, marked ##, stay at [CLS].', '[CLS]', '##')).toEqual([
      ['##', '##'],
      ['[CLS]', '[CLS]'],
    ]);
  });
});

it.each(Object.entries(GLOSSARY))('%s is explained in one or two sentences', (_, text) => {
  expect(text).toMatch(/\.$/u);
  expect(text.length).toBeLessThan(180);
  expect(text.split(/[.] (?=[A-Z])/u).length).toBeLessThanOrEqual(2);
});

describe('examples', () => {
  const [first] = EXAMPLES;
  const source = /** @type {any} */ ({ title: first.text });

  it('are known by their sentence', () => {
    expect(fileOf(first.text)).toBe('sample/minilm.npz');
    expect(fileOf('another sentence')).toBeUndefined();
    expect(new Set(EXAMPLES.map(({ name }) => name)).size).toBe(EXAMPLES.length);
  });

  it('say their finding only where it is on screen as it was measured', () => {
    const at = { source, layer: first.layer, head: first.head };
    const shown = (/** @type {any} */ patch) => exampleShown(createStore({ ...at, ...patch }).state);
    expect(shown({})).toBe(first);
    expect(shown({ head: 5 })).toBeUndefined();
    expect(shown({ over: 'layer' })).toBeUndefined();
    expect(shown({ editText: 'def score_mod(score, b, h, q, k): return 2 * score' })).toBeUndefined();
    expect(shown({ reading: { words: true, special: 'show' } })).toBeUndefined();
    expect(shown({ input: { kind: 'synthetic' } })).toBeUndefined();
    expect(shown({ source: null })).toBeUndefined();
  });
});
