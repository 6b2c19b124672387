/** A widget model's traits as the state of a view, both ways. */

import { createModel, focusOf, openSource, within } from '../store.js';
import { themedColormap } from '../theme.js';

/**
 * @typedef {import('./link.js').AnyModel} AnyModel
 * @typedef {Pick<import('../store.js').State, 'layer' | 'head' | 'query' | 'key'>} Focus
 * @typedef {ReturnType<typeof createTraitModel>} TraitModel
 */

const SAVE_MS = 120; // a pointer that crosses a map moves the selection at every cell

/**
 * @param {AnyModel} traits
 * @param {import('../api.js').Call} call
 */
export function createTraitModel(traits, call) {
  const sync = new TraitSync(traits, call);
  return Object.assign(sync.model, {
    /** The host became light or dark: a colour map that follows it does too. @param {boolean} now */
    setDark: (now) => sync.setDark(now),
    end: () => sync.end(),
  });
}

/** Keeps a model's state and the traits the same; what came from the kernel is not sent back to it. */
class TraitSync {
  #traits;
  #isDark = false;
  /** Whether the state is being changed by what came from the kernel. */
  #reading = false;
  #sourceWaits = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #saving;
  #unsubscribe;
  /** @type {[event: string, listener: () => void][]} */
  #listeners = [
    ...['source', 'tokens', 'title'].map(onChange(() => this.#sourceChanged())),
    ...['layer', 'head', 'selection'].map(onChange(() => this.#read(() => this.#focus()))),
    ...['coloring'].map(onChange(() => this.#read(() => this.#color()))),
    ...['variant'].map(onChange(() => this.#read(() => this.model.set({ variant: variantFrom(this.#traits) })))),
    ...['timings'].map(onChange(() => this.#readTimings())),
  ];

  /** @param {AnyModel} traits @param {import('../api.js').Call} call */
  constructor(traits, call) {
    this.#traits = traits;
    const initial = { ...focusFrom(traits), style: styleFrom(traits, false), variant: variantFrom(traits) };
    this.model = createModel(call, initial);
    this.#unsubscribe = this.model.on(['layer', 'head', 'query', 'key', 'style', 'variant'], () => {
      if (!this.#reading) this.#saving ??= setTimeout(() => this.#save(), SAVE_MS);
    });
    for (const [event, listener] of this.#listeners) traits.on(event, listener);
    this.#readSource();
  }

  /** @param {boolean} now */
  setDark(now) {
    if (now === this.#isDark) return;
    const { style } = this.model.state;
    const automatic = style.colormap === themedColormap('rocket', this.#isDark);
    this.#isDark = now;
    if (automatic) this.#read(() => this.model.set({ style: { ...style, colormap: themedColormap('rocket', now) } }));
    else this.model.set({ style: { ...style } }); // the map's own lines and letters
  }

  end() {
    if (this.#saving) this.#save();
    this.#unsubscribe();
    for (const [event, listener] of this.#listeners) this.#traits.off(event, listener);
  }

  /** @param {() => void} work changes the state by what came from the kernel */
  #read(work) {
    this.#reading = true;
    try {
      work();
    } finally {
      this.#reading = false;
    }
  }

  /** Several traits that change together are one new source. */
  #sourceChanged() {
    if (this.#sourceWaits) return;
    this.#sourceWaits = true;
    queueMicrotask(() => {
      this.#sourceWaits = false;
      this.#read(() => this.#readSource());
    });
  }

  #readSource() {
    const source = this.#traits.get('source');
    if (!source?.layers) return this.model.set({ source: null });
    const [title, tokens] = [this.#traits.get('title') ?? '', this.#traits.get('tokens') ?? []];
    if (source.reading) this.model.set({ reading: source.reading });
    return openSource(this.model, { ...source, title, tokens });
  }

  #focus() {
    const { source } = this.model.state;
    const focus = focusFrom(this.#traits);
    this.model.set(source ? within({ ...focusOf(this.model.state), ...focus }, source) : focus);
  }

  #color() {
    this.model.set({ style: { ...this.model.state.style, ...styleFrom(this.#traits, this.#isDark) } });
  }

  #readTimings() {
    const measured = this.#traits.get('timings');
    const { timings } = this.model.state;
    if (!measured?.parts || timings.some((one) => one.variant === measured.variant)) return;
    this.#read(() => this.model.set({ timings: [...timings, measured] }));
  }

  #save() {
    clearTimeout(this.#saving);
    this.#saving = undefined;
    const changed = Object.entries(traitsFrom(this.model.state, this.#isDark)).filter(
      ([name, value]) => JSON.stringify(this.#traits.get(name)) !== JSON.stringify(value),
    );
    for (const [name, value] of changed) this.#traits.set(name, value);
    if (changed.length) this.#traits.save_changes();
  }
}

/** Pairs the name of a trait, as its event is called, with a listener. @param {() => void} listener */
function onChange(listener) {
  return (/** @type {string} */ name) => /** @type {[string, () => void]} */ ([`change:${name}`, listener]);
}

/** @param {AnyModel} traits @returns {Focus} */
function focusFrom(traits) {
  const [query = 0, key = 0] = traits.get('selection') ?? [];
  return { layer: traits.get('layer') ?? 0, head: traits.get('head') ?? 0, query, key };
}

/** @param {AnyModel} traits @param {boolean} isDark @returns {import('../types').Style} */
function styleFrom(traits, isDark) {
  const { colormap = 'auto', scale = 'sqrt', pool = 'max' } = traits.get('coloring') ?? {};
  return { colormap: colormap === 'auto' ? themedColormap('rocket', isDark) : colormap, scale, pool };
}

/** @param {AnyModel} traits */
function variantFrom(traits) {
  const variant = traits.get('variant');
  return !variant || variant === 'auto' ? 'all' : variant;
}

/** What the kernel is to know of a state. @param {Readonly<import('../store.js').State>} state @param {boolean} isDark */
function traitsFrom({ layer, head, query, key, style, variant }, isDark) {
  const { colormap, scale, pool } = style;
  const automatic = colormap === themedColormap('rocket', isDark);
  return {
    layer,
    head,
    selection: [query, key],
    variant: variant === 'all' ? 'auto' : variant,
    coloring: { colormap: automatic ? 'auto' : colormap, scale, pool },
  };
}
