import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { startAddress } from '../src/address.js';
import { keepAddress } from '../src/history.js';

const START = startAddress({ layer: 3, head: 1, query: 9, key: 2 });
const LONG_AGO = 60_000;

/** A window as far as history.js needs one; `written` has the addresses and when they were written. */
function standIn() {
  const listeners = /** @type {Record<string, () => void>} */ ({});
  const written = /** @type {{ how: string, url: string, at: number }[]} */ ([]);
  const location = { hash: '', pathname: '/', search: '', href: '' };
  const write = (/** @type {string} */ how) => (/** @type {any} */ state, /** @type {string} */ _, /** @type {string} */ url) => {
    written.push({ how, url, at: performance.now() });
    history.state = state;
    location.hash = url.startsWith('#') ? url : '';
    location.href = url;
  };
  const history = { state: /** @type {any} */ (null), pushState: write('push'), replaceState: write('replace') };
  const listen = (/** @type {string} */ type, /** @type {() => void} */ listener) => (listeners[type] = listener);
  const stubs = { location, history, addEventListener: listen, document: { addEventListener: listen } };
  for (const [name, value] of Object.entries(stubs)) vi.stubGlobal(name, value);
  return { written, listeners, location };
}

/** The page with a state that a test changes. */
function visited() {
  const page = standIn();
  const state = structuredClone(START);
  const follow = vi.fn();
  const address = keepAddress(START, () => ({ ...state }), follow);
  const change = async (/** @type {Partial<typeof state>} */ patch) => {
    Object.assign(state, patch);
    address.changed();
    await Promise.resolve();
  };
  vi.advanceTimersByTime(LONG_AGO);
  return { ...page, state, follow, address, change };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe('the address', () => {
  it('is written at once, after all changes of one event', async () => {
    const { written, change } = visited();
    const all = [change({ layer: 2 }), change({ head: 5 }), change({ query: 4 })];
    expect(written).toEqual([]); // the event goes on
    await Promise.all(all);
    expect(written).toEqual([{ how: 'push', url: '#layer=2&head=5&query=4', at: LONG_AGO }]);
    await change({ key: 1 });
    expect(written.map(({ how }) => how)).toEqual(['push', 'replace']);
  });

  it('is written less often than Safari allows, whatever changes how often, and the last change with it', async () => {
    const { written, change, location } = visited();
    for (let time = 0; time < 120_000; time += 16) {
      await change({ layer: time % 6, query: time % 1000 });
      vi.advanceTimersByTime(16);
    }
    for (const { at } of written) {
      const near = written.filter((other) => other.at >= at && other.at < at + 30_000);
      expect(near.length).toBeLessThan(100);
    }
    expect(written.length).toBeGreaterThan(300);
    await change({ query: 777 });
    vi.advanceTimersByTime(350);
    expect(location.hash).toContain('query=777');
  });

  it.each(['pagehide', 'visibilitychange'])('is written on %s where a change still waits', async (event) => {
    const { written, change, listeners, location } = visited();
    for (let query = 0; query < 50; query++) await change({ query });
    expect(location.hash).not.toContain('query=49');
    listeners[event]();
    expect(location.hash).toContain('query=49');
    const count = written.length;
    listeners[event]();
    vi.advanceTimersByTime(LONG_AGO);
    expect(written).toHaveLength(count);
  });

  it('that the visitor goes back to is not written over while the page follows it', async () => {
    const { written, change, listeners, location, follow } = visited();
    await change({ layer: 2 });
    await change({ layer: 3 });
    const count = written.length;
    Object.assign(location, { hash: '#layer=4' });
    follow.mockImplementation(() => void change({ head: 5 })); // the first of several steps
    listeners.popstate();
    await Promise.resolve();
    expect(written).toHaveLength(count);
    expect(follow).toHaveBeenCalledWith(expect.objectContaining({ layer: 4 }), []);
    await change({ layer: 4, head: 1 });
    vi.advanceTimersByTime(350);
    expect(written).toHaveLength(count); // it says what it said
  });

  it('is not written where nothing has changed', async () => {
    const { written, change, address } = visited();
    await change({ layer: START.layer });
    expect(address.link).toBe('');
    expect(written).toEqual([]);
  });
});
