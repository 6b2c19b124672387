import { describe, expect, it, vi } from 'vitest';
import { createModel, createStore, openSource, scopedStore } from '../src/store.js';

const source = { kind: 'sample', title: 'a text', layers: 6, heads: 12, length: 10, tokens: [] };

/** @param {object} [changes] @returns {any} */
const sourceWith = (changes) => ({ ...source, ...changes });

describe('createStore', () => {
  it('tells listeners of the keys that changed, and no others', () => {
    const store = createStore({ layer: 2 });
    const [layer, head] = [vi.fn(), vi.fn()];
    store.on(['layer', 'query'], layer);
    store.on(['head'], head);
    store.set({ layer: 3 });
    store.set({ layer: 3 });
    expect(layer).toHaveBeenCalledExactlyOnceWith(store.state);
    expect(head).not.toHaveBeenCalled();
    expect(store.state.layer).toBe(3);
  });

  it('tells a listener once of several of its keys', () => {
    const store = createStore();
    const listener = vi.fn();
    store.on(['query', 'key'], listener);
    store.set({ query: 1, key: 2 });
    expect(listener).toHaveBeenCalledTimes(1);
  });

  it('tells nothing after the subscription was ended', () => {
    const store = createStore();
    const listener = vi.fn();
    const end = store.on(['layer'], listener);
    end();
    store.set({ layer: 1 });
    expect(listener).not.toHaveBeenCalled();
  });

  it('has a state that cannot be changed from outside', () => {
    const { state } = createStore();
    expect(() => Object.assign(state, { layer: 4 })).toThrow(TypeError);
  });
});

describe('openSource', () => {
  it('keeps the focus as far as the new source reaches, and forgets timings', () => {
    const store = createStore({ layer: 5, head: 3, query: 9, key: 20, timings: [/** @type {any} */ ({})] });
    openSource(store, sourceWith({ layers: 4, heads: 12, length: 8 }));
    expect(store.state).toMatchObject({ sourceNumber: 1, layer: 3, head: 3, query: 7, key: 7, timings: [] });
  });
});

describe('scopedStore', () => {
  it('tells what holds already, once it begins', () => {
    const store = createStore({ source: sourceWith() });
    const scoped = scopedStore(store);
    const listener = vi.fn();
    scoped.on(['source'], listener);
    expect(listener).not.toHaveBeenCalled();
    scoped.begin();
    scoped.begin();
    expect(listener).toHaveBeenCalledExactlyOnceWith(store.state);
  });

  it('is cut off from its store when it ends, and has no source then', () => {
    const model = createModel(async () => null, { source: sourceWith(), head: 3 });
    const scoped = scopedStore(model);
    const listener = vi.fn();
    scoped.on(['head'], listener);
    scoped.end();
    model.set({ head: 4 });
    scoped.set({ head: 5 });
    expect(listener).not.toHaveBeenCalled();
    expect(model.state.head).toBe(4);
    expect(scoped.state).toMatchObject({ source: null, sourceNumber: -1, head: 3 });
  });
});
