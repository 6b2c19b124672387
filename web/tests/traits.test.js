import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

// theme.js asks for the system's theme when it is imported.
vi.stubGlobal('matchMedia', () => ({ matches: false }));
const { createTraitModel } = await import('../src/embed/traits.js');

const SOURCE = { kind: 'tensors', layers: 2, heads: 4, length: 6 };

/** A widget model without a host. @param {Record<string, any>} values */
function hostModel(values) {
  /** @type {Map<string, Set<() => void>>} */
  const listeners = new Map();
  const host = {
    values,
    saved: 0,
    get: (/** @type {string} */ name) => values[name],
    set: (/** @type {string} */ name, /** @type {unknown} */ value) => void (values[name] = value),
    save_changes: () => void host.saved++,
    send: () => {},
    on: (/** @type {string} */ name, /** @type {() => void} */ listener) => void listeners.set(name, (listeners.get(name) ?? new Set()).add(listener)),
    off: (/** @type {string} */ name, /** @type {() => void} */ listener) => void listeners.get(name)?.delete(listener),
    /** What the kernel changes. @param {Record<string, any>} changes */
    receive(changes) {
      Object.assign(values, changes);
      for (const name of Object.keys(changes)) for (const listener of listeners.get(`change:${name}`) ?? []) listener();
    },
    count: () => [...listeners.values()].reduce((sum, set) => sum + set.size, 0),
  };
  return host;
}

/** @param {Record<string, any>} [traits] */
function begin(traits) {
  const host = hostModel({ source: SOURCE, tokens: ['a'], title: 'one', ...traits });
  return { host, model: createTraitModel(host, async () => null) };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe('what the kernel sets', () => {
  it('is the beginning of the state', () => {
    const { model } = begin({ layer: 1, head: 3, selection: [4, 5], variant: 'naive', coloring: { colormap: 'mako', scale: 'log', pool: 'mean' } });
    expect(model.state).toMatchObject({
      layer: 1,
      head: 3,
      query: 4,
      key: 5,
      variant: 'naive',
      style: { colormap: 'mako', scale: 'log', pool: 'mean' },
      source: { ...SOURCE, title: 'one', tokens: ['a'] },
    });
  });

  it('has the reading of another front end, and does not ask for its own again', () => {
    const { host, model } = begin();
    const reading = { words: true, special: 'hide' };
    host.receive({ source: { ...SOURCE, length: 4, reading }, tokens: ['ab'] });
    return Promise.resolve().then(() => expect(model.state).toMatchObject({ reading, source: { length: 4, tokens: ['ab'] } }));
  });

  it('is kept inside the source, and not sent back', () => {
    const { host, model } = begin();
    host.receive({ layer: 9, selection: [-1, 99] });
    expect(model.state).toMatchObject({ layer: 1, query: 0, key: 5 });
    vi.runAllTimers();
    expect(host.saved).toBe(0);
  });

  it('is one new source, however many traits change for it', async () => {
    const { host, model } = begin();
    const before = model.state.sourceNumber;
    host.receive({ source: { ...SOURCE, length: 3 }, tokens: ['b'], title: 'two' });
    await Promise.resolve();
    expect(model.state.sourceNumber).toBe(before + 1);
    expect(model.state.source).toMatchObject({ length: 3, tokens: ['b'], title: 'two' });
  });

  it('takes the source away where it has no layers', async () => {
    const { host, model } = begin();
    host.receive({ source: {} });
    await Promise.resolve();
    expect(model.state.source).toBeNull();
  });

  it('adds a measurement of each variant once', () => {
    const { host, model } = begin();
    const naive = { variant: 'naive', parts: {} };
    host.receive({ timings: naive });
    host.receive({ timings: { ...naive } });
    host.receive({ timings: {} });
    expect(model.state.timings).toEqual([naive]);
  });
});

describe('what the visitor changes', () => {
  it('is saved once for several steps', () => {
    const { host, model } = begin();
    model.set({ query: 1 });
    model.set({ query: 2, key: 3 });
    expect(host.saved).toBe(0);
    vi.runAllTimers();
    expect(host.saved).toBe(1);
    expect(host.values.selection).toEqual([2, 3]);
  });

  it('is not saved where the trait has that value', () => {
    const { host, model } = begin({ layer: 0, head: 1, selection: [0, 0], variant: 'auto', coloring: { colormap: 'auto', scale: 'sqrt', pool: 'max' } });
    model.set({ head: 2 });
    model.set({ head: 1 });
    vi.runAllTimers();
    expect(host.saved).toBe(0);
  });

  it('is saved when the model ends, and then no more', () => {
    const { host, model } = begin();
    model.set({ layer: 1 });
    model.end();
    expect([host.saved, host.values.layer, host.count()]).toEqual([1, 1, 0]);
    model.set({ layer: 0 });
    vi.runAllTimers();
    expect(host.saved).toBe(1);
  });
});

describe('a host that becomes dark', () => {
  it('changes a colour map that follows it, and saves nothing for that', () => {
    const { host, model } = begin();
    expect(model.state.style.colormap).toBe('rocket_r');
    model.setDark(true);
    expect(model.state.style.colormap).toBe('rocket');
    vi.runAllTimers();
    expect(host.saved).toBe(0);
  });

  it('leaves a chosen colour map as it is', () => {
    const { model } = begin({ coloring: { colormap: 'mako', scale: 'sqrt', pool: 'max' } });
    model.setDark(true);
    expect(model.state.style.colormap).toBe('mako');
  });
});
