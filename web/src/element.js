/**
 * <py-attn src="sample.npz" layer="2" head="5">: attention maps in any page. See docs/element.md.
 *
 * A page loads only this file at first; the rest, and Python, are loaded once an element scrolls into view.
 */

/**
 * @typedef {import('./embed/file-view.js').FileView} FileView
 * @typedef {import('./heatmap/export.js').Format} Format
 * @typedef {{ layer: number, head: number, query: number, key: number }} Focus
 */

/** The folder that this file lies in, with all that it loads. */
const BASE = import.meta.url.replace(/[^/]*$/u, '');
const FOCUS = /** @type {const} */ (['layer', 'head', 'query', 'key']);
const SCALES = ['linear', 'sqrt', 'log'];
const POOLS = ['max', 'mean'];

export class PyAttnElement extends HTMLElement {
  static observedAttributes = ['src', 'parts', 'theme', 'colormap', 'scale', 'pool', ...FOCUS];

  /** @type {Promise<FileView> | null} */
  #loading = null;
  /** @type {FileView | null} */
  #view = null;
  /** @type {IntersectionObserver | null} */
  #sight = null;
  /** @type {Partial<Focus>} what was asked for before the view existed */
  #wanted = {};
  /** @type {Promise<ArrayBuffer> | null} */
  #given = null;

  constructor() {
    super();
    const style = new CSSStyleSheet(); // a style element would be against a strict Content-Security-Policy
    style.replaceSync(':host { display: block; min-height: 240px } :host([hidden]) { display: none }');
    this.attachShadow({ mode: 'open' }).adoptedStyleSheets = [style];
  }

  // life

  connectedCallback() {
    if (this.#loading) return; // moved from one place to another
    this.#sight = new IntersectionObserver((entries) => {
      if (entries.some(({ isIntersecting }) => isIntersecting)) void this.#load();
    });
    this.#sight.observe(this);
  }

  disconnectedCallback() {
    this.#sight?.disconnect();
    // Moving an element disconnects it for a moment.
    queueMicrotask(() => {
      if (this.isConnected) return;
      const loading = this.#loading;
      this.#loading = this.#view = null;
      void loading?.then((view) => view.destroy(), () => {});
    });
  }

  /** @param {string} name @param {string | null} before @param {string | null} now */
  attributeChangedCallback(name, before, now) {
    if (before === now) return;
    if (name === 'src') {
      this.#given = null;
      this.#open();
    } else if (name === 'parts') this.#view?.setParts(now ?? '');
    else if (name === 'theme') this.#view?.setTheme(this.#theme());
    else if (name === 'colormap') this.#view?.setColormap(now || 'rocket');
    else if (name === 'scale' || name === 'pool') this.#view?.model.set({ style: { ...this.#view.model.state.style, ...this.#style() } });
    else this.#focus({ [name]: number(now) });
  }

  #load() {
    this.#sight?.disconnect();
    this.#loading ??= import('./embed/file-view.js').then(({ FileView }) => {
      const attributes = Object.fromEntries(FOCUS.map((name) => [name, number(this.getAttribute(name))]));
      const view = new FileView(this, {
        base: BASE,
        initial: {
          ...attributes,
          ...this.#wanted,
          style: { colormap: this.getAttribute('colormap') || 'rocket', scale: 'sqrt', pool: 'max', ...this.#style() },
        },
        onReady: () => this.#tell('ready', { layers: view.model.state.source?.layers, heads: view.model.state.source?.heads, tokens: this.tokens }),
        onError: (error) => this.#tell('error', { message: error.message, error }),
      });
      view.setTheme(this.#theme());
      view.setParts(this.parts);
      this.#listen(view);
      if (!this.isConnected) {
        view.destroy();
        throw new Error('the element was removed from the page');
      }
      this.#view = view;
      this.#open();
      return view;
    });
    this.#loading.catch(() => {});
    return this.#loading;
  }

  /** @param {FileView} view */
  #listen({ model }) {
    let telling = false;
    model.on([...FOCUS], () => {
      if (telling || !model.state.source) return;
      telling = true;
      // A pointer that crosses the map is reported once a frame.
      requestAnimationFrame(() => {
        telling = false;
        const { layer, head, query, key, source } = model.state;
        if (!source) return;
        const [from, to] = [source.tokens[query], source.tokens[key]];
        this.#tell('selection', { layer, head, query, key, tokens: [from, to] });
      });
    });
    model.on(['timings'], ({ timings, layer }) => {
      if (timings.length) this.#tell('timings', { layer, timings });
    });
  }

  #open() {
    const view = this.#view;
    if (!view) return;
    const src = this.getAttribute('src');
    const bytes = this.#given ?? (src ? download(new URL(src, document.baseURI)) : null);
    if (bytes) void view.open(bytes);
  }

  /** @param {string} name @param {Record<string, unknown>} detail */
  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(`py-attn-${name}`, { detail, bubbles: true, composed: true }));
  }

  /** @param {Partial<Focus>} patch */
  #focus(patch) {
    if (!this.#view) {
      Object.assign(this.#wanted, patch);
      return;
    }
    const { model } = this.#view;
    const { source } = model.state;
    if (!source) return model.set(patch);
    const limits = { layer: source.layers, head: source.heads, query: source.length, key: source.length };
    for (const name of FOCUS) {
      const value = patch[name];
      if (value !== undefined) patch[name] = Math.min(Math.max(value, 0), limits[name] - 1);
    }
    return model.set(patch);
  }

  #theme() {
    const theme = this.getAttribute('theme');
    return theme === 'light' || theme === 'dark' ? theme : '';
  }

  /** @returns {any} scale and pool, where they are known words */
  #style() {
    const [scale, pool] = [this.getAttribute('scale') ?? '', this.getAttribute('pool') ?? ''];
    return { ...(SCALES.includes(scale) && { scale }), ...(POOLS.includes(pool) && { pool }) };
  }

  // properties

  get src() {
    return this.getAttribute('src') ?? '';
  }

  set src(address) {
    this.setAttribute('src', address);
  }

  /** The names of the parts that are shown, with spaces or commas between them; '' for all. */
  get parts() {
    return this.getAttribute('parts') ?? '';
  }

  set parts(names) {
    this.setAttribute('parts', names);
  }

  /** A file's bytes, instead of `src`: an ArrayBuffer, a typed array or a Blob. @param {ArrayBuffer | Uint8Array<ArrayBuffer> | Blob} bytes */
  set data(bytes) {
    this.#given = new Response(bytes).arrayBuffer();
    this.#open();
  }

  get layer() {
    return this.#view?.model.state.layer ?? this.#wanted.layer ?? number(this.getAttribute('layer'));
  }

  set layer(layer) {
    this.#focus({ layer: number(layer) });
  }

  get head() {
    return this.#view?.model.state.head ?? this.#wanted.head ?? number(this.getAttribute('head'));
  }

  set head(head) {
    this.#focus({ head: number(head) });
  }

  /** Query and key of the chosen cell. @returns {[number, number]} */
  get selection() {
    const { query, key } = this.#view?.model.state ?? this.#wanted;
    return [query ?? number(this.getAttribute('query')), key ?? number(this.getAttribute('key'))];
  }

  set selection([query, key]) {
    this.#focus({ query: number(query), key: number(key) });
  }

  /** The measurements that the visitor has made of the layer in focus. */
  get timings() {
    return this.#view?.model.state.timings ?? [];
  }

  get tokens() {
    return this.#view?.model.state.source?.tokens ?? [];
  }

  /** What is on screen of the large map, as a Blob. @param {Format} format */
  async export(format) {
    const view = await this.#loading;
    if (!view) throw new Error('There is no map yet.');
    return (await view.exported(format)).data;
  }
}

/** A whole number that is not below 0. @param {unknown} given */
function number(given) {
  const value = Math.trunc(Number(given ?? 0));
  return Number.isFinite(value) && value > 0 ? value : 0;
}

/** @param {URL} url @returns {Promise<ArrayBuffer>} */
async function download(url) {
  /** @type {Response} */
  let response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new Error(`${url.pathname} could not be fetched (${error instanceof Error ? error.message : error}).`);
  }
  if (!response.ok) throw new Error(`The server answered ${response.status} ${response.statusText} for ${url.pathname}.`);
  return response.arrayBuffer();
}

if (!customElements.get('py-attn')) customElements.define('py-attn', PyAttnElement);
