/**
 * Downloads of the site's own large files (wheels, weights, samples). manifest.json lists each with its size and
 * SHA-256; a download reports its progress in bytes, is verified, and is kept in the browser's cache.
 *
 * An insecure context has neither the Cache API nor crypto.subtle; there nothing is kept, and only the size is checked.
 */

import { canKeepFiles, keepFile, keptFile } from './kept-files.js';

/**
 * @typedef {{ path: string, bytes: number, sha256: string }} ManifestEntry
 * @typedef {{ version: string, assets: Record<string, ManifestEntry> }} Manifest
 * @typedef {(loaded: number, total: number) => void} OnProgress
 * @typedef {{ onProgress?: OnProgress, signal?: AbortSignal }} FetchOptions
 * @typedef {ReturnType<typeof createAssets>} Assets
 */

export const ASSET_CACHE = 'py-attn-assets';

/** A file of the site could not be fetched, or is not what the manifest says. Calling `fetch` again retries. */
export class AssetError extends Error {
  name = 'AssetError';
}

/**
 * @param {string | URL} baseUrl the folder of the site, with a slash at the end
 */
export function createAssets(baseUrl) {
  /** @type {Promise<Manifest> | undefined} */
  let loading;

  /** The list of all assets; read once, and again after a failure. */
  function manifest() {
    loading ??= readManifest(new URL('manifest.json', baseUrl)).catch((error) => {
      loading = undefined;
      throw error;
    });
    return loading;
  }

  /**
   * Resolves with an asset's verified bytes, from the cache or the network.
   *
   * Rejects with an `AssetError` that says what was expected and what was received (unknown name, HTTP error,
   * broken connection, wrong length, wrong hash), or with a `DOMException` named AbortError.
   *
   * @param {string} name
   * @param {FetchOptions} [options]
   * @returns {Promise<ArrayBuffer>}
   */
  async function fetchAsset(name, { onProgress = () => {}, signal } = {}) {
    const entry = await find(name);
    signal?.throwIfAborted();
    return load(name, entry, addressOf(entry), onProgress, signal);
  }

  /**
   * Resolves with an asset as a response that may still be arriving, for `WebAssembly.instantiateStreaming`. With a response of
   * its HTTP cache a browser keeps the machine code that it has made, so that later visits need not compile it again.
   *
   * Rejects like `fetch`, and so does `verified`, which resolves when all bytes are there and are those of the manifest.
   *
   * @param {string} name
   * @param {FetchOptions} [options]
   * @returns {Promise<{ response: Response, verified: Promise<void> }>}
   */
  async function stream(name, { onProgress = () => {}, signal } = {}) {
    const entry = await find(name);
    return respond(name, entry, addressOf(entry), onProgress, signal);
  }

  /** @param {string} name */
  async function find(name) {
    const entry = (await manifest()).assets[name];
    if (!entry) throw new AssetError(`manifest.json lists no asset named ${name}`);
    return entry;
  }

  /** @param {ManifestEntry} entry */
  function addressOf(entry) {
    const url = new URL(entry.path, baseUrl);
    // With the hash in the address, no HTTP cache can answer with an older version of the file.
    url.searchParams.set('sha256', entry.sha256.slice(0, 16));
    return url;
  }

  /** Where a file is asked for. @param {string} name */
  async function address(name) {
    return addressOf(await find(name));
  }

  /** Whether a later visit finds an asset in the browser's cache. @param {string} name */
  async function isKept(name) {
    const { assets } = await manifest();
    return name in assets && Boolean(await (await openCache())?.match(addressOf(assets[name])));
  }

  /**
   * Keeps what `make` makes of an asset for later visits, in place of the asset; `prepared` finds it then. Where that is kept
   * already, or nothing can be, nothing is downloaded. For workers: see kept-files.js.
   *
   * Rejects like `fetch`.
   *
   * @param {string} name
   * @param {(bytes: ArrayBuffer) => Promise<Uint8Array>} make
   */
  async function prepare(name, make) {
    const entry = await find(name);
    if (!(await canKeepFiles()) || (await prepared(name))) return;
    const bytes = await download(name, entry, addressOf(entry), () => {}, undefined);
    await verify(name, entry, bytes);
    await keepFile(keptName(name), entry.sha256, await make(bytes));
  }

  /**
   * What reads that which an earlier visit made of this version of an asset, if it is kept.
   * @param {string} name
   */
  async function prepared(name) {
    const { assets } = await manifest();
    return name in assets ? keptFile(keptName(name), assets[name].sha256) : undefined;
  }

  /** Sites of one origin may lie at several paths. @param {string} name */
  function keptName(name) {
    return encodeURIComponent(`${new URL(baseUrl).pathname}${name}`);
  }

  return { manifest, address, fetch: fetchAsset, stream, isKept, prepare, prepared };
}

/** @param {URL} url @returns {Promise<Manifest>} */
async function readManifest(url) {
  // The other files are checked against this one, so it must not come from a cache.
  const response = await ask('manifest.json', url, { cache: 'no-cache' });
  const manifest = await response.json().catch(() => null);
  if (!manifest?.assets) throw new AssetError(`manifest.json at ${url} is not a manifest of this site`);
  return manifest;
}

/**
 * @param {string} name
 * @param {ManifestEntry} entry
 * @param {URL} url
 * @param {OnProgress} onProgress
 * @param {AbortSignal | undefined} signal
 */
async function load(name, entry, url, onProgress, signal) {
  const cache = await openCache();
  const kept = await cache?.match(url);
  if (kept) {
    const bytes = await kept.arrayBuffer();
    if (bytes.byteLength === entry.bytes) {
      onProgress(entry.bytes, entry.bytes);
      return bytes;
    }
  }
  const bytes = await download(name, entry, url, onProgress, signal);
  await verify(name, entry, bytes);
  signal?.throwIfAborted();
  if (cache) void keep(cache, url, bytes); // nothing waits for the disk
  return bytes;
}

/**
 * @param {string} name
 * @param {ManifestEntry} entry
 * @param {URL} url
 * @param {OnProgress} onProgress
 * @param {AbortSignal | undefined} signal
 */
async function respond(name, entry, url, onProgress, signal) {
  const cache = await openCache();
  if (await cache?.match(url)) {
    // Only what was verified is kept; the HTTP cache has the same response.
    const response = (await answerOfCache(url)) ?? new Response(await load(name, entry, url, () => {}, signal));
    onProgress(entry.bytes, entry.bytes);
    return { response, verified: Promise.resolve() };
  }
  const response = await ask(name, url, { signal });
  const verified = read(name, entry, response.clone(), onProgress, signal).then(async (bytes) => {
    await verify(name, entry, bytes);
    if (cache) void keep(cache, url, bytes);
  });
  return { response, verified };
}

/**
 * What the browser's HTTP cache still has, without asking the server.
 * @param {URL} url
 * @returns {Promise<Response | undefined>}
 */
async function answerOfCache(url) {
  try {
    const response = await fetch(url, { cache: 'only-if-cached', mode: 'same-origin' });
    return response.ok ? response : undefined;
  } catch {
    return undefined; // it was removed from there, or the site is of another origin
  }
}

/** @returns {Promise<Cache | undefined>} nothing where storage is missing or forbidden */
async function openCache() {
  try {
    return await globalThis.caches?.open(ASSET_CACHE);
  } catch {
    return undefined;
  }
}

/**
 * Whether a file of the site is in the browser's cache.
 * @param {string} path of the file, or a folder with a slash at its end
 */
export async function isPathKept(path) {
  const requests = (await (await openCache())?.keys()) ?? [];
  return requests.some(({ url }) => new URL(url).pathname.includes(`/${path}`));
}

/**
 * @param {Cache} cache
 * @param {URL} url
 * @param {ArrayBuffer} bytes
 */
async function keep(cache, url, bytes) {
  try {
    await cache.delete(url, { ignoreSearch: true }); // earlier versions of the same file
    await cache.put(url, new Response(bytes));
  } catch {
    // A full disk or a private window: the next visit downloads again.
  }
}

/**
 * @param {string} name
 * @param {URL} url
 * @param {RequestInit} init
 */
async function ask(name, url, init) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    init.signal?.throwIfAborted();
    throw new AssetError(`${name}: no connection to ${url.host} (${messageOf(error)})`);
  }
  if (!response.ok) {
    throw new AssetError(`${name}: the server answered ${response.status} ${response.statusText} for ${url.pathname}`);
  }
  return response;
}

/**
 * @param {string} name
 * @param {ManifestEntry} entry
 * @param {URL} url
 * @param {OnProgress} onProgress
 * @param {AbortSignal | undefined} signal
 */
async function download(name, entry, url, onProgress, signal) {
  return read(name, entry, await ask(name, url, { signal }), onProgress, signal);
}

/**
 * @param {string} name
 * @param {ManifestEntry} entry
 * @param {Response} response
 * @param {OnProgress} onProgress
 * @param {AbortSignal | undefined} signal
 */
async function read(name, entry, response, onProgress, signal) {
  const bytes = new Uint8Array(entry.bytes);
  let loaded = 0;
  const reader = response.body?.getReader();
  try {
    while (reader) {
      const { done, value } = await reader.read();
      if (done) break;
      if (loaded + value.length > bytes.length) {
        await reader.cancel();
        throw new AssetError(`${name}: more than the expected ${bytes.length} bytes were received`);
      }
      bytes.set(value, loaded);
      loaded += value.length;
      onProgress(loaded, bytes.length);
    }
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof AssetError) throw error;
    throw new AssetError(
      `${name}: the download broke off after ${loaded} of ${bytes.length} bytes (${messageOf(error)})`,
    );
  }
  if (loaded < bytes.length) {
    throw new AssetError(`${name}: the download ended after ${loaded} of ${bytes.length} bytes`);
  }
  return bytes.buffer;
}

/**
 * @param {string} name
 * @param {ManifestEntry} entry
 * @param {ArrayBuffer} bytes
 */
async function verify(name, entry, bytes) {
  if (!globalThis.crypto?.subtle) return;
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  const got = Array.from(digest, (byte) => byte.toString(16).padStart(2, '0')).join('');
  if (got !== entry.sha256) {
    throw new AssetError(`${name}: the file's SHA-256 is ${got}, expected ${entry.sha256}`);
  }
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
