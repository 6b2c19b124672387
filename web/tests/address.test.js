import { describe, expect, it } from 'vitest';
import { decode, encode, MAX_TEXT, startAddress } from '../src/address.js';

const START = startAddress({ layer: 5, head: 11, query: 9, key: 2 });
const FULL = {
  ...START,
  input: { kind: 'text', text: 'Größe & #2 = 50%, “zitiert”, 猫 🐈\n+1' },
  layer: 0,
  head: 3,
  query: 0,
  key: 12,
  pins: [{ query: 3, key: 4 }, { query: 9, key: 0 }],
  view: { x: 1.5, y: 0, span: 6.25 },
  over: 'rollout',
  reading: { words: true, special: 'renormalise' },
  heads: [{ layer: 0, head: 3 }, { layer: 5, head: 0 }],
  openAs: 'lines',
  direction: 'to',
  compare: { with: 'text', text: 'The dog, a cat' },
  style: { colormap: 'viridis', scale: 'log', pool: 'mean', show: 'gradient', range: 'map' },
  mod: 'def score_mod(score, b, h, q, k):\n    return score - pa.abs(q - k)',
  wgsl: 'eJx_-0aZ',
};
const SHAPE = { length: 300, heads: 8, kv_heads: 2, head_dim: 64, mask: 'alibi', window: null, softcap: 30.5, seed: 7 };

/** @param {string} fragment */
const read = (fragment) => decode(fragment, START);

describe('an address', () => {
  it('says nothing where nothing has changed', () => {
    expect(encode(START, START)).toBe('');
    for (const nothing of ['', '#kernel']) expect(read(nothing)).toEqual({ address: START, problems: [] });
  });

  it('comes back as it was', () => {
    expect(read(encode(/** @type {any} */ (FULL), START))).toEqual({ address: FULL, problems: [] });
    for (const input of [{ kind: 'synthetic', shape: SHAPE }, { kind: 'file', name: 'maps, 1.npz' }, { kind: 'python', name: 'An array of shape [3, 3]' }, { kind: 'write' }]) {
      expect(read(encode(/** @type {any} */ ({ ...START, input }), START)).address.input).toEqual(input);
    }
    const writing = { packed: 'eJx_-0aZ', begun: 0 };
    const written = encode(/** @type {any} */ ({ ...START, input: { kind: 'write' }, writing: { ...writing, begun: 7 } }), START);
    expect(written).toBe('#write=1.eJx_-0aZ');
    expect(read(written).address).toEqual({ ...START, input: { kind: 'write' }, writing });
    for (const compare of [{ with: 'head', layer: 2, head: 0 }, { with: 'unedited' }, { with: 'cache', dtype: 'turboquant3' }]) {
      expect(read(encode(/** @type {any} */ ({ ...START, compare }), START)).address.compare).toEqual(compare);
    }
  });

  it('reads the links of earlier versions, which have a text alone', () => {
    expect(read('#text=a%20cat').address).toEqual({ ...START, input: { kind: 'text', text: 'a cat' } });
  });

  it('has only characters that a link may have', () => {
    expect(encode(/** @type {any} */ (FULL), START)).toMatch(/^#[\w.~,=&%-]+$/u);
  });

  it('leaves long texts out', () => {
    const long = { ...START, input: /** @type {const} */ ({ kind: 'text', text: 'x'.repeat(MAX_TEXT + 1) }), mod: 'x'.repeat(MAX_TEXT + 1) };
    expect(encode(long, START)).toBe('');
  });

  it('names what has no meaning, and keeps the rest', () => {
    const { address, problems } = read('#text=hi&layer=-1&head=2&query=1e9&pins=1.2,3&heads=0.1,0.1&direction=up&view=0,0,0&style=jet,sqrt,max,weights,unit&over=x&nonsense=1&key=%E0%A4');
    expect(problems).toEqual(['layer', 'query', 'pins', 'heads', 'direction', 'view', 'style', 'over', 'nonsense', 'key']);
    expect(address).toEqual({ ...START, input: { kind: 'text', text: 'hi' }, head: 2 });
  });

  it('is never trusted', () => {
    for (const hostile of [
      '#__proto__=1', '#constructor=1', '#=', '#&&&', '#view=NaN,1,2', '#view=1,2,Infinity', '#synthetic=1,2,3',
      '#synthetic=256,8,2,64,evil,,,1', '#compare=cache,../../x', '#compare=head,1', '#wgsl=<script>', `#pins=${'1.1,'.repeat(999)}`,
      `#text=${'x'.repeat(MAX_TEXT + 1)}`, '#style=rocket', '#write=yes', '#write=2.eJx_', '#write=1.eJ.x', '#write=1.<b>', `#write=1.${'x'.repeat(16_001)}`, '#words=true', '#toString=1',
    ]) {
      const { address, problems } = read(hostile);
      expect(address, hostile).toEqual(START);
      if (hostile !== '#&&&') expect(problems.length, hostile).toBe(1);
    }
  });

  it('can be read whatever stands in it', () => {
    let seed = 12345;
    const random = () => (seed = (1103515245 * seed + 12345) % 2147483648) / 2147483648;
    const letters = ['text', 'layer', 'view', 'pins', '=', '&', '#', '%', '%20', ',', '.', '-', '1', '9', 'e', 'é', '猫', '"', '<', ' '];
    for (let round = 0; round < 2000; round++) {
      const fragment = Array.from({ length: 1 + Math.floor(random() * 20) }, () => letters[Math.floor(random() * letters.length)]).join('');
      const { address } = read(fragment);
      const again = read(encode(address, START)).address;
      expect(again, fragment).toEqual(address);
    }
  });
});
