/** One map, large: pointed at, zoomed, and read off exactly. */

import { choose, fill, h, icon, ICONS, putPixels, segmented } from '../dom.js';
import { formatCount, formatToken, formatWeight, shortError } from '../format.js';
import { download, FORMATS, toJson, toPng, toSvg } from '../heatmap/export.js';
import { mountHeatmap } from '../heatmap/heatmap.js';
import { latest } from '../latest.js';
import { menu } from '../menu.js';
import { createRows } from '../rows.js';

const SAVING = {
  png: { label: 'PNG picture', title: 'As it is on screen' },
  svg: { label: 'SVG drawing', title: 'As it is on screen, with labels as text' },
  json: { label: 'JSON weights', title: 'The weights on screen, with their tokens' },
};

const MEANING = {
  weights: 'How much each query attends to each key.',
  gradient: 'Weight × the gradient of ½‖out‖² with respect to it, over ‖out‖²: what each link brought. Below 0 it pulls against the output.',
};

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountFocus(element, api, store) {
  const rows = createRows(api, store);
  const title = h('h2', null, 'Focus');
  const subtitle = h('p', null, ' ');
  const box = h('div', { class: 'heatmap-box' });
  const inspector = h('p', { class: 'inspector' }, ' ');
  const tools = h(
    'div',
    { class: 'tools', role: 'toolbar', 'aria-label': 'Zoom and save' },
    button('Zoom out', ICONS.minus, () => map.zoomBy(1 / 1.6)),
    button('Zoom in', ICONS.plus, () => map.zoomBy(1.6)),
    button('Show the whole map', ICONS.fit, () => map.fit()),
    menu(
      'Save what is shown',
      ICONS.save,
      FORMATS.map((format) => ({ ...SAVING[format], act: () => void save(format) })),
    ),
  );
  const what = segmented(
    'What the map shows',
    [
      { value: 'weights', label: 'Weights', title: 'how much each query attends to each key' },
      { value: 'gradient', label: 'Weight × gradient', title: 'how much each link matters for what its row puts out' },
    ],
    store.state.style.show ?? 'weights',
    (value) => setStyle({ show: /** @type {import('../types').Show} */ (value) }),
  );
  const meaning = h('p', { class: 'muted small' }, MEANING.weights);
  const scale = segmented(
    'Colour scale',
    [
      { value: 'linear', label: 'linear' },
      { value: 'sqrt', label: '√', title: 'square root: small weights show better' },
      { value: 'log', label: 'log', title: 'four decades' },
    ],
    store.state.style.scale,
    (value) => setStyle({ scale: /** @type {import('../types').Style['scale']} */ (value) }),
  );
  const pooling = segmented(
    'What a pixel shows that stands for several weights',
    [
      { value: 'max', label: 'max', title: 'the largest of the weights that share a pixel' },
      { value: 'mean', label: 'mean', title: 'the mean of the weights that share a pixel' },
    ],
    store.state.style.pool,
    (value) => setStyle({ pool: /** @type {import('../types').Style['pool']} */ (value) }),
  );
  const colors = h(
    'select',
    {
      class: 'input compact',
      'aria-label': 'Colour map',
      onchange: () => setStyle({ colormap: colors.value + (store.state.style.colormap.endsWith('_r') ? '_r' : '') }),
    },
    ['rocket', 'magma', 'viridis'].map((name) => h('option', { value: name }, name)),
  );
  const sampling = h('p', { class: 'muted small', hidden: true });
  const strip = h('canvas', { class: 'legend-strip', width: 256, height: 1 });
  const ticks = h('div', { class: 'legend-ticks' });
  const legend = h('figure', { class: 'legend', 'aria-label': 'Colour legend: weight from 0 to 1' }, strip, ticks);

  fill(
    element,
    h('header', null, h('div', null, title, subtitle), tools),
    h('div', { class: 'focus-what' }, what, meaning),
    box,
    inspector,
    h('div', { class: 'focus-foot' }, legend, h('div', { class: 'style-choices' }, scale, pooling, colors)),
    sampling,
    h(
      'p',
      { class: 'muted small' },
      'Rows ask, columns answer. Arrow keys move the cursor, ',
      h('kbd', null, '+'),
      ' ',
      h('kbd', null, '−'),
      ' ',
      h('kbd', null, '0'),
      ' or the wheel zoom once the map is clicked, dragging pans.',
    ),
  );

  const map = mountHeatmap(box, {
    onCursor: (query, key) => store.set({ query, key }),
    onView: () => request(),
  });

  const load = latest(
    async (/** @type {import('../store.js').State} */ state) => {
      const { sourceNumber, layer, head, style } = state;
      const { rows: r, columns: c, pixels, width } = map.visible();
      if (!width) return;
      box.setAttribute('aria-busy', 'true');
      const answer = await api.window({ layer, head, rows: r, columns: c, size: [pixels, pixels] }, style);
      box.setAttribute('aria-busy', 'false');
      if (store.state.sourceNumber !== sourceNumber || store.state.style.show !== style.show) return;
      const canvas = document.createElement('canvas');
      putPixels(canvas, answer.rgba, answer.width, answer.height);
      map.setPicture({ canvas, rows: answer.rows, columns: answer.columns });
      pooling.classList.toggle('inactive', answer.exact);
      sampling.hidden = answer.step === 1;
      sampling.textContent = `At this distance one of every ${answer.step} rows is looked at; zoom in for all of them.`;
      if (!box.dataset.shown) performance.mark('py-attn:first-map');
      box.dataset.shown = `${sourceNumber}/${layer}/${head}`;
    },
    (error) => {
      box.setAttribute('aria-busy', 'false');
      fill(inspector, `The map could not be computed: ${shortError(error)}`);
    },
  );
  const request = () => {
    if (store.state.source) load(store.state);
  };

  function inspect() {
    const { source, query, key, layer, head } = store.state;
    if (!source) return;
    map.canvas.setAttribute(
      'aria-label',
      `Attention map, layer ${layer + 1}, head ${head + 1}. Row ${query + 1}, column ${key + 1}.`,
    );
    const known = rows.peek();
    show(source, query, key, known ? formatWeight(known.weights[key]) : '…');
    if (!known) rows.ask(inspect);
  }

  /** @param {import('../types').SourceInfo} source @param {number} query @param {number} key @param {string} weight */
  function show(source, query, key, weight) {
    fill(
      inspector,
      tokenMark(source.tokens[query], query),
      h('span', { class: 'arrow', 'aria-label': 'attends to' }, '→'),
      tokenMark(source.tokens[key], key),
      h('output', { class: 'weight' }, weight),
    );
  }

  /**
   * What is on screen of the map, as a file.
   * @param {import('../heatmap/export.js').Format} format
   * @returns {Promise<import('../heatmap/export.js').Exported>}
   */
  async function exported(format) {
    const { source, layer, head, query, key } = store.state;
    if (!source) throw new Error('There is no map yet.');
    const name = `attention-layer${layer + 1}-head${head + 1}.${format}`;
    const type = { png: 'image/png', svg: 'image/svg+xml', json: 'application/json' }[format];
    if (format === 'png') return { name, type, data: await toPng(map.scene()) };
    if (format === 'svg') return { name, type, data: toSvg(map.scene(), `${source.title} – ${title.textContent}`) };
    const { rows: r, columns: c } = map.visible();
    const show = store.state.style.show ?? 'weights';
    const part = await api.weights({ layer, head, rows: r, columns: c, show });
    return { name, type, data: toJson({ source, layer, head, query, key, show }, part) };
  }

  /** @param {import('../heatmap/export.js').Format} format */
  async function save(format) {
    try {
      download(await exported(format));
    } catch (error) {
      fill(inspector, `The map could not be saved: ${shortError(error)}`);
    }
  }

  /** @param {Partial<import('../types').Style>} patch */
  function setStyle(patch) {
    store.set({ style: { ...store.state.style, ...patch } });
  }

  // Without an answer the strip stays as it is; the map says what is wrong.
  const drawLegend = () => void askLegend().catch(() => {});

  async function askLegend() {
    const { colormap, scale: kind, show } = store.state.style;
    const answer = await api.legend(colormap, kind, show);
    legend.setAttribute('aria-label', `Colour legend: ${show === 'gradient' ? 'share from -1 to 1' : 'weight from 0 to 1'}`);
    putPixels(strip, answer.rgba, 256, 1);
    fill(
      ticks,
      answer.ticks.map(({ value, at }) => h('span', { style: { '--at': at } }, String(value).replace('-', '−'))),
    );
  }

  store.on(['sourceNumber'], ({ source }) => {
    if (!source) return;
    what.hidden = source.kind === 'weights'; // which alone have no gradient
    map.setTokens(source.tokens);
    map.setCursor(store.state.query, store.state.key);
    drawLegend();
  });
  store.on(['sourceNumber', 'edit', 'layer', 'head'], ({ source, layer, head, style }) => {
    title.textContent = `Layer ${layer + 1}, head ${head + 1}`;
    subtitle.textContent = source ? describe(source, style.show) : ' ';
    request();
    inspect();
  });
  store.on(['style'], () => {
    const { source, style } = store.state;
    choose(scale, style.scale);
    choose(what, style.show ?? 'weights');
    meaning.textContent = MEANING[style.show ?? 'weights'];
    subtitle.textContent = source ? describe(source, style.show) : ' ';
    request();
    inspect();
    drawLegend();
    map.recolor();
  });
  store.on(['query', 'key'], ({ query, key }) => {
    map.setCursor(query, key);
    inspect();
  });
  return { exported, destroy: () => map.destroy() };
}

/** @param {import('../types').SourceInfo} source @param {import('../types').Show} [show] */
function describe(source, show) {
  const { length, edited = [] } = source;
  const mods = edited.length ? ` Your ${edited.join(' and ')} ${edited.length > 1 ? 'hold' : 'holds'}.` : '';
  if (show === 'gradient') {
    return `Every row is what one query’s output comes from: shares of ${formatCount(length)} keys that sum to 1.${mods}`;
  }
  return `Every row is one query’s softmax over ${formatCount(length)} keys, ${how(source)}.${mods}`;
}

/** @param {import('../types').SourceInfo} source */
function how({ kind, engine }) {
  if (kind === 'weights') return 'as it was given';
  return engine === 'webgpu' ? 'recomputed from Q, K and the row’s LSE' : 'computed by the numpy reference';
}

/** A token as a person should see it, whatever its script. @param {string} token @param {number} index */
export function tokenMark(token, index) {
  return h('bdi', { class: 'token', dir: 'auto', title: `position ${index}` }, formatToken(token));
}

/** @param {string} label @param {string} path @param {() => void} onClick */
function button(label, path, onClick) {
  return h(
    'button',
    { class: 'button icon compact', type: 'button', 'aria-label': label, title: label, onclick: onClick },
    icon(path),
  );
}
