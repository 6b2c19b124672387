import { beforeEach, describe, expect, it, vi } from 'vitest';
import { AssetError, createAssets } from '../src/assets.js';
import { fakeFiles } from './fake-files.js';

const content = new TextEncoder().encode('weights');
const sha256 = new Uint8Array(await crypto.subtle.digest('SHA-256', content)).reduce((text, byte) => text + byte.toString(16).padStart(2, '0'), '');
const BASE = 'https://example.org/some/where/';
const FILE = `${BASE}models/a.bin?sha256=${sha256.slice(0, 16)}`;

/** @type {Map<string, () => Response>} */
let answers;
/** @type {string[]} */
let asked;
/** @type {Map<string, Response>} */
let kept;

/** The page's cache, in memory. */
const cache = {
  match: async (/** @type {URL} */ url) => kept.get(url.href)?.clone(),
  put: async (/** @type {URL} */ url, /** @type {Response} */ response) => void kept.set(url.href, response),
  delete: async (/** @type {URL} */ url) => {
    for (const href of kept.keys()) if (href.split('?')[0] === url.href.split('?')[0]) kept.delete(href);
  },
};

/** @param {object} [changes] of the entry */
function manifest(changes) {
  const entry = { path: 'models/a.bin', bytes: content.length, sha256, ...changes };
  return () => Response.json({ version: '1', assets: { a: entry } });
}

beforeEach(() => {
  kept = new Map();
  asked = [];
  answers = new Map([
    [`${BASE}manifest.json`, manifest()],
    [FILE, () => new Response(content)],
  ]);
  vi.stubGlobal('caches', { open: async () => cache });
  const fetched = async (/** @type {URL} */ url) => {
    asked.push(url.href);
    const answer = answers.get(url.href);
    if (!answer) throw new TypeError('refused');
    return answer();
  };
  vi.stubGlobal('fetch', vi.fn(fetched));
});

describe('createAssets', () => {
  it('asks for a file under the site’s folder, with its hash in the address', async () => {
    const bytes = await createAssets(BASE).fetch('a');
    expect(new Uint8Array(bytes)).toEqual(content);
    expect(asked).toEqual([`${BASE}manifest.json`, FILE]);
  });

  it('reads the manifest once, and a file from the cache the second time', async () => {
    const assets = createAssets(BASE);
    await assets.fetch('a');
    await vi.waitFor(() => expect([...kept.keys()]).toEqual([FILE]));
    const onProgress = vi.fn();
    await assets.fetch('a', { onProgress });
    expect(asked).toHaveLength(2);
    expect(onProgress).toHaveBeenCalledExactlyOnceWith(content.length, content.length);
  });

  it('keeps only the latest version of a file', async () => {
    kept.set(`${BASE}models/a.bin?sha256=old`, new Response('old'));
    await createAssets(BASE).fetch('a');
    await vi.waitFor(() => expect([...kept.keys()]).toEqual([FILE]));
  });

  it('gives a file as a response, which is verified while it is used, and keeps it', async () => {
    const onProgress = vi.fn();
    const { response, verified } = await createAssets(BASE).stream('a', { onProgress });
    expect(new Uint8Array(await response.arrayBuffer())).toEqual(content);
    await verified;
    expect(onProgress).toHaveBeenLastCalledWith(content.length, content.length);
    await vi.waitFor(() => expect([...kept.keys()]).toEqual([FILE]));
  });

  it('gives a kept file as the response of the HTTP cache, with which the browser keeps machine code', async () => {
    kept.set(FILE, new Response(content));
    const cached = new Response(content);
    answers.set(FILE, () => cached);
    const { response, verified } = await createAssets(BASE).stream('a');
    await verified;
    expect(response).toBe(cached);
    expect(fetch).toHaveBeenLastCalledWith(new URL(FILE), { cache: 'only-if-cached', mode: 'same-origin' });
  });

  it.each([
    ['nothing', () => Promise.reject(new TypeError('not there'))],
    ['an error', () => new Response('', { status: 504 })],
  ])('gives a kept file as its bytes where the HTTP cache has %s', async (_, answer) => {
    kept.set(FILE, new Response(content));
    answers.set(FILE, /** @type {any} */ (answer));
    const { response } = await createAssets(BASE).stream('a');
    expect(new Uint8Array(await response.arrayBuffer())).toEqual(content);
  });

  it('tells of a response that is not what the manifest says, and does not keep it', async () => {
    answers.set(FILE, () => new Response('strange'));
    const { verified } = await createAssets(BASE).stream('a');
    await expect(verified).rejects.toThrow(`expected ${sha256}`);
    expect([...kept.keys()]).toEqual([]);
  });

  it('keeps what is made of a file in place of the file, once', async () => {
    fakeFiles();
    const assets = createAssets(BASE);
    const make = vi.fn(async (/** @type {ArrayBuffer} */ bytes) => new Uint8Array(bytes).slice(1));
    expect(await assets.prepared('a')).toBeUndefined();
    expect(await assets.prepared('unknown')).toBeUndefined();
    await assets.prepare('a', make);
    await assets.prepare('a', make);
    expect(make).toHaveBeenCalledTimes(1);
    expect(await (await createAssets(BASE).prepared('a'))?.()).toEqual(content.slice(1));
    expect([...kept.keys()]).toEqual([]);
    // Another version takes its place.
    answers.set(`${BASE}manifest.json`, manifest({ sha256: 'other' }));
    expect(await createAssets(BASE).prepared('a')).toBeUndefined();
  });

  it('makes nothing of a file that is not what the manifest says, nor where nothing is kept', async () => {
    const make = vi.fn();
    await createAssets(BASE).prepare('a', make);
    expect(asked).toEqual([`${BASE}manifest.json`]);
    fakeFiles();
    answers.set(FILE, () => new Response('strange'));
    await expect(createAssets(BASE).prepare('a', make)).rejects.toThrow(AssetError);
    expect(make).not.toHaveBeenCalled();
  });

  it('works where the browser has no cache', async () => {
    vi.stubGlobal('caches', { open: async () => Promise.reject(new Error('forbidden')) });
    expect((await createAssets(BASE).fetch('a')).byteLength).toBe(content.length);
  });

  it.each([
    ['an unknown name', 'b', {}, 'lists no asset named b'],
    ['a file that is longer', 'a', { bytes: 3 }, 'more than the expected 3 bytes'],
    ['a file that is shorter', 'a', { bytes: 99 }, 'ended after 7 of 99 bytes'],
  ])('tells of %s', async (_, name, changes, message) => {
    answers.set(`${BASE}manifest.json`, manifest(changes));
    await expect(createAssets(BASE).fetch(name)).rejects.toMatchObject({ name: 'AssetError', message: expect.stringContaining(message) });
  });

  it('tells of another content, of an HTTP error and of no connection', async () => {
    const assets = createAssets(BASE);
    answers.set(FILE, () => new Response('another'));
    await expect(assets.fetch('a')).rejects.toThrow(`expected ${sha256}`);
    answers.set(FILE, () => new Response('', { status: 404, statusText: 'Not Found' }));
    await expect(assets.fetch('a')).rejects.toThrow('answered 404 Not Found for /some/where/models/a.bin');
    answers.delete(FILE);
    await expect(assets.fetch('a')).rejects.toThrow('no connection to example.org (refused)');
  });

  it('asks for the manifest again after a failure', async () => {
    const assets = createAssets(BASE);
    answers.set(`${BASE}manifest.json`, () => new Response('<html>'));
    await expect(assets.manifest()).rejects.toThrow('is not a manifest of this site');
    answers.set(`${BASE}manifest.json`, manifest());
    expect((await assets.manifest()).version).toBe('1');
  });

  it('does not begin a download that was cancelled', async () => {
    await expect(createAssets(BASE).fetch('a', { signal: AbortSignal.abort() })).rejects.toMatchObject({ name: 'AbortError' });
    expect(asked).toHaveLength(1);
  });
});
