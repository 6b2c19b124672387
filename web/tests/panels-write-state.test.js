import { describe, expect, it } from 'vitest';
import { packText, PackedTextError } from '../src/packed-text.js';
import { checkState, packState, unpackState } from '../src/panels/write-state.js';

/** @type {import('../src/panels/write-state.js').WriteState} */
const STATE = {
  prompt: 'The sea, 猫 & “#”\n',
  chat: true,
  numbers: [120, 0.8, 40, null, 7],
  cache: { cache: 'turboquant3', context: 64, ring: true, sink_tokens: 4 },
  off: [0, 269],
  over: 'layer',
  ids: [1, 49_151, 0],
  texts: [' the', '', '🐈'],
  given: 1,
  finished: 'end',
};
/** @param {any} change */
const refused = (change) => unpackAny({ ...STATE, ...change });
/** @param {any} state */
const unpackAny = async (state) => unpackState(await packText(JSON.stringify(state)));

describe('the state of the Write panel', () => {
  it('comes back as it was', async () => {
    const packed = await packState(STATE);
    expect(packed).toMatch(/^[\w-]+$/u);
    expect(await unpackState(packed)).toEqual(STATE);
  });

  it('is short enough for an address with a text of hundreds of tokens', async () => {
    const words = 'the ship went down to the sea and a light was seen from the old house at night'.split(' ');
    const texts = Array.from({ length: 600 }, (_, i) => ` ${words[(i * i) % words.length]}`);
    const ids = texts.map((_, i) => (i * 7919) % 49_152);
    expect((await packState({ ...STATE, ids, texts })).length).toBeLessThan(8000);
  });

  it('keeps nothing that it does not know', async () => {
    expect(await unpackAny({ ...STATE, more: 1 })).toEqual(STATE);
    expect(checkState(JSON.stringify({ ...STATE, __proto__: { more: 1 } }))).toEqual(STATE);
  });

  it.each(/** @type {[string, any][]} */ ([
    ['no prompt', { prompt: null }],
    ['a long prompt', { prompt: 'x'.repeat(100_001) }],
    ['a mode', { chat: 'yes' }],
    ['a number that is a text', { numbers: [1, '2', 3, 4, 5] }],
    ['few numbers', { numbers: [1, 2, 3, 4] }],
    ['an endless number', { numbers: [1, 2, 3, 4, Infinity].map(String) }],
    ['no cache', { cache: null }],
    ['an unknown cache', { cache: { ...STATE.cache, cache: '../../x' } }],
    ['a huge ring', { cache: { ...STATE.cache, context: 1e9 } }],
    ['a short ring that is none', { cache: { cache: 'float32', context: 512, ring: false, sink_tokens: 4 } }],
    ['a cache of another size', { cache: { cache: 'float32', context: 64, ring: false, sink_tokens: 0 } }],
    ['a head that is not there', { off: [270] }],
    ['a negative head', { off: [-1] }],
    ['a colour', { over: 'rollout' }],
    ['an id that is not there', { ids: [1, 49_152, 0] }],
    ['half an id', { ids: [1, 0.5, 0] }],
    ['too few texts', { texts: [' the'] }],
    ['texts that are none', { texts: [1, 2, 3] }],
    ['a long token', { texts: ['x'.repeat(1001), '', ''] }],
    ['a text that is too long', { ids: Array.from({ length: 2049 }, () => 1), texts: Array.from({ length: 2049 }, () => 'a') }],
    ['more given than there are', { given: 4 }],
    ['a text without a prompt', { given: 0 }],
    ['an end', { finished: '<b>' }],
  ]))('refuses %s', async (_, change) => {
    await expect(refused(change)).rejects.toThrow(PackedTextError);
  });

  it('refuses what is no object', async () => {
    for (const other of [null, 1, 'a', [], {}]) await expect(unpackAny(other)).rejects.toThrow(PackedTextError);
    await expect(unpackState(await packText('{'))).rejects.toThrow(PackedTextError);
    await expect(unpackState('eJx_-0aZ')).rejects.toThrow(PackedTextError);
  });
});
