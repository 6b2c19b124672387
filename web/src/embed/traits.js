/** A widget model's traits as the state of a view, both ways. */

import { createModel, openSource } from '../store.js';
import { themedColormap } from '../theme.js';

const SAVE_MS = 120; // a pointer that crosses a map moves the selection at every cell

/**
 * @param {import('./link.js').AnyModel} traits
 * @param {import('../api.js').Call} call
 */
export function createTraitModel(traits, call) {
  let isDark = false;
  const model = createModel(call, { ...fromTraits(), style: styleFrom(), variant: variantFrom(traits.get('variant')) });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let saving;
  let reading = false;

  function fromTraits() {
    const [query = 0, key = 0] = traits.get('selection') ?? [];
    return { layer: traits.get('layer') ?? 0, head: traits.get('head') ?? 0, query, key };
  }

  /** @returns {import('../types').Style} */
  function styleFrom() {
    const { colormap = 'auto', scale = 'sqrt', pool = 'max' } = traits.get('coloring') ?? {};
    return { colormap: colormap === 'auto' ? themedColormap('rocket', isDark) : colormap, scale, pool };
  }

  function readSource() {
    const source = traits.get('source');
    if (!source?.layers) return model.set({ source: null });
    return openSource(model, { ...source, title: traits.get('title') ?? '', tokens: traits.get('tokens') ?? [] });
  }

  // Several traits that change together are one new source.
  let coming = false;
  function sourceChanged() {
    if (coming) return;
    coming = true;
    queueMicrotask(() => {
      coming = false;
      read(readSource);
    });
  }

  /** @param {() => void} work what it changes came from the kernel and need not go back */
  function read(work) {
    reading = true;
    try {
      work();
    } finally {
      reading = false;
    }
  }

  const listeners = /** @type {[string, () => void][]} */ ([
    ...['source', 'tokens', 'title'].map((name) => [`change:${name}`, sourceChanged]),
    ...['layer', 'head', 'selection'].map((name) => [`change:${name}`, () => read(() => focus(fromTraits()))]),
    ['change:coloring', () => read(() => model.set({ style: { ...model.state.style, ...styleFrom() } }))],
    ['change:variant', () => read(() => model.set({ variant: variantFrom(traits.get('variant')) }))],
    ['change:timings', readTimings],
  ]);

  /** @param {{ layer: number, head: number, query: number, key: number }} wanted */
  function focus({ layer, head, query, key }) {
    const { source } = model.state;
    if (!source) return model.set({ layer, head, query, key });
    return model.set({
      layer: within(layer, source.layers),
      head: within(head, source.heads),
      query: within(query, source.length),
      key: within(key, source.length),
    });
  }

  function readTimings() {
    const measured = traits.get('timings');
    if (!measured?.parts || model.state.timings.some((one) => one.variant === measured.variant)) return;
    read(() => model.set({ timings: [...model.state.timings, measured] }));
  }

  function save() {
    clearTimeout(saving);
    saving = undefined;
    const { layer, head, query, key, style, variant } = model.state;
    const { colormap, scale, pool } = style;
    const automatic = colormap === themedColormap('rocket', isDark);
    const now = {
      layer,
      head,
      selection: [query, key],
      variant: variant === 'all' ? 'auto' : variant,
      coloring: { colormap: automatic ? 'auto' : colormap, scale, pool },
    };
    const changed = Object.entries(now).filter(([name, value]) => JSON.stringify(traits.get(name)) !== JSON.stringify(value));
    for (const [name, value] of changed) traits.set(name, value);
    if (changed.length) traits.save_changes();
  }

  const unsubscribe = model.on(['layer', 'head', 'query', 'key', 'style', 'variant'], () => {
    if (!reading) saving ??= setTimeout(save, SAVE_MS);
  });
  for (const [name, listener] of listeners) traits.on(name, listener);
  readSource();

  return Object.assign(model, {
    /** The host became light or dark: colours that follow it do. @param {boolean} now */
    setDark(now) {
      if (now === isDark) return;
      const automatic = model.state.style.colormap === themedColormap('rocket', isDark);
      isDark = now;
      if (automatic) read(() => model.set({ style: { ...model.state.style, colormap: themedColormap('rocket', isDark) } }));
      else model.set({ style: { ...model.state.style } }); // the map's own lines and letters
    },

    end() {
      if (saving) save();
      unsubscribe();
      for (const [name, listener] of listeners) traits.off(name, listener);
    },
  });
}

/** @param {string | undefined} trait */
function variantFrom(trait) {
  return !trait || trait === 'auto' ? 'all' : trait;
}

/** @param {number} index @param {number} count */
function within(index, count) {
  return Math.min(Math.max(index, 0), count - 1);
}
