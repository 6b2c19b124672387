import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Link } from '../src/embed/link.js';

vi.stubGlobal('addEventListener', () => {});

/** A widget model whose kernel is the test. */
function hostModel() {
  /** @type {Map<string, (...news: any[]) => void>} */
  const listeners = new Map();
  const host = {
    /** @type {any[]} */
    sent: [],
    broken: false,
    get: () => undefined,
    set: () => {},
    save_changes: () => {},
    send(/** @type {any} */ content, /** @type {unknown} */ _, /** @type {any} */ buffers) {
      if (host.broken) throw new Error('no kernel');
      host.sent.push({ ...content, buffers });
    },
    on: (/** @type {string} */ name, /** @type {() => void} */ listener) => void listeners.set(name, listener),
    off: (/** @type {string} */ name) => void listeners.delete(name),
    /** @param {any} message @param {any[]} [buffers] */
    receive: (message, buffers) => listeners.get('msg:custom')?.(message, buffers),
    breakDown: () => listeners.get('comm_live_update')?.(),
    /** @param {string} kind */
    last: (kind) => host.sent.filter((message) => message.kind === kind).at(-1),
    listeners,
  };
  return host;
}

/** @type {Link[]} */
let links = [];
function begin() {
  const host = hostModel();
  const link = new Link(host);
  links.push(link);
  return { host, link };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  for (const link of links) link.close();
  links = [];
  vi.useRealTimers();
});

describe('Link', () => {
  it('is live once the kernel has answered, and tells how many views there are', () => {
    const { host, link } = begin();
    expect(host.sent[0]).toMatchObject({ kind: 'hello', webgpu: false });
    link.countView(1);
    host.receive({ kind: 'welcome', kernel: 'k1' });
    expect(link.state).toBe('live');
    expect(host.last('views')).toMatchObject({ count: 1 });
    expect([link.owns('k1:2'), link.owns('k12:2'), link.owns('k2:1')]).toEqual([true, false, false]);
  });

  it('is silent when nobody answers, asks again later and later, and is live when somebody does', () => {
    const { host, link } = begin();
    vi.advanceTimersByTime(3000);
    expect([link.state, host.sent.length]).toEqual(['silent', 2]);
    vi.advanceTimersByTime(5999);
    expect(host.sent.length).toBe(2);
    vi.advanceTimersByTime(1);
    expect(host.sent.length).toBe(3);
    host.receive({ kind: 'welcome', kernel: 'k1' });
    expect(link.state).toBe('live');
  });

  it('brings arrays to the kernel and back', async () => {
    const { host, link } = begin();
    const answer = link.call('open_file', { data: Uint8Array.of(1, 2) });
    const { id, payload, buffers } = host.last('call');
    expect(payload).toEqual({ data: { $buffer: 0, dtype: 'uint8', shape: [2] } });
    expect([...buffers[0]]).toEqual([1, 2]);
    const result = { weights: { $buffer: 0, dtype: 'float32', shape: [1] } };
    host.receive({ kind: 'answer', id, result }, [new Uint8Array(Float32Array.of(0.5).buffer)]);
    expect(await answer).toEqual({ weights: Float32Array.of(0.5) });
  });

  it('rejects with the exception that Python raised', async () => {
    const { host, link } = begin();
    const answer = link.call('window');
    host.receive({ kind: 'answer', id: host.last('call').id, error: { type: 'ValueError', message: 'no such head' } });
    await expect(answer).rejects.toMatchObject({ name: 'ValueError', message: 'no such head' });
  });

  it('passes progress on to the call that it belongs to', () => {
    const { host, link } = begin();
    const onProgress = vi.fn();
    link.call('measure', {}, onProgress).catch(() => {});
    host.receive({ kind: 'progress', id: host.last('call').id, news: ['naive', 1, 3] });
    expect(onProgress).toHaveBeenCalledExactlyOnceWith('naive', 1, 3);
  });

  it('asks whether the kernel is there while an answer is due', () => {
    const { host, link } = begin();
    host.receive({ kind: 'welcome', kernel: 'k1' });
    const hellos = () => host.sent.filter(({ kind }) => kind === 'hello').length;
    link.call('window').catch(() => {});
    vi.advanceTimersByTime(6000);
    expect(hellos()).toBe(2);
    host.receive({ kind: 'answer', id: host.last('call').id, result: 1 });
    vi.advanceTimersByTime(60_000);
    expect(hellos()).toBe(2);
  });

  it('ignores what is meant for another page', () => {
    const { host, link } = begin();
    host.receive({ kind: 'welcome', kernel: 'k1', page: 'another' });
    expect(link.state).toBe('waiting');
  });

  it('answers a ping', () => {
    const { host } = begin();
    host.receive({ kind: 'ping', id: 7 });
    expect(host.last('pong')).toMatchObject({ id: 7 });
  });

  it('is not alive when its connection broke, nobody answers and nobody looks', () => {
    const { host, link } = begin();
    host.receive({ kind: 'welcome', kernel: 'k1' });
    host.breakDown();
    expect(link.alive).toBe(true);
    vi.advanceTimersByTime(3000);
    expect([link.state, link.alive]).toEqual(['silent', false]);
    link.countView(1);
    expect(link.alive).toBe(true);
  });

  it('is silent where the host cannot send', () => {
    const { host, link } = begin();
    host.receive({ kind: 'welcome', kernel: 'k1' });
    host.broken = true;
    link.countView(1);
    expect(link.state).toBe('silent');
  });

  it('rejects all that waits when Python closes the view, and listens no more', async () => {
    const { host, link } = begin();
    const onChange = vi.fn();
    link.onChange(onChange);
    const answer = link.call('window');
    host.receive({ kind: 'closed' });
    await expect(answer).rejects.toThrow('closed in Python');
    await expect(link.call('window')).rejects.toThrow('closed in Python');
    expect(onChange).toHaveBeenCalledTimes(1);
    expect(host.listeners.size).toBe(0);
    const sent = host.sent.length;
    vi.advanceTimersByTime(60_000);
    expect(host.sent.length).toBe(sent);
  });
});
