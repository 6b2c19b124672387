/**
 * What the page shows before Python is there: the sample's maps, made by scripts/make_first_picture.py. It answers some of
 * the panels' calls, exactly as Python would.
 */

import kept from './picture.json';

/** Arguments that the picture knows, with what it has been made for; what else is asked for, Python answers. */
const MADE_FOR = /** @type {Record<string, unknown>} */ ({ scale: 'sqrt', show: 'weights', range: 'unit', maximum: 1, over: 'head', edited: true });
const COLORMAP = 'rocket';
/** Every cell is one weight, so that it does not matter how several would be combined. */
const FREE = ['colormap', 'pool', 'layer', 'head', 'query', 'rows', 'columns', 'size', 'links'];
const LINKS = 8;

/** @param {string} text in base64 @returns {Uint8Array<ArrayBuffer>} */
function bytes(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

export function firstPicture() {
  const source = /** @type {import('../types').SourceInfo} */ (kept.source);
  const { length, heads } = source;
  const levels = bytes(kept.levels);
  const weights = new Float32Array(bytes(kept.weights).buffer);
  const colors = new Uint32Array(bytes(kept.colors).buffer);

  /** A part of the maps in colours. @param {Uint8Array} part levels @param {string} colormap @returns {Uint8Array<ArrayBuffer>} */
  const paint = (part, colormap) => {
    const last = colormap.endsWith('_r') ? 255 : 0;
    const rgba = new Uint32Array(part.length);
    part.forEach((level, i) => (rgba[i] = colors[Math.abs(last - level)]));
    return new Uint8Array(rgba.buffer);
  };

  /** @type {Record<string, (payload: any) => any>} */
  const answers = {
    legend: ({ colormap }) => ({ rgba: paint(Uint8Array.from({ length: 256 }, (_, level) => level), colormap), ticks: kept.ticks }),

    overview: ({ layer, colormap }) => {
      const size = heads * length * length;
      const part = levels.subarray(layer * size, (layer + 1) * size);
      return { layer, heads, size: length, step: 1, rgba: paint(part, colormap) };
    },

    window: ({ layer, head, rows, columns, size, colormap }) => {
      const [height, width] = [rows[1] - rows[0], columns[1] - columns[0]];
      if (size[0] < height || size[1] < width) return undefined; // several weights would share a pixel
      const part = new Uint8Array(height * width);
      for (let y = 0; y < height; y++) {
        const from = ((layer * heads + head) * length + rows[0] + y) * length + columns[0];
        part.set(levels.subarray(from, from + width), y * width);
      }
      return { rgba: paint(part, colormap), height, width, rows, columns, exact: true, step: 1 };
    },

    row: ({ layer, head, query }) => {
      if (layer !== kept.layer || head !== kept.head) return undefined;
      const row = weights.slice(query * length, (query + 1) * length);
      const links = [...row].map((weight, key) => ({ key, weight }));
      links.sort((a, b) => b.weight - a.weight);
      return { query, weights: row, links: links.slice(0, LINKS).filter(({ weight }) => weight !== 0) };
    },
  };

  return {
    /** The sample, with "built" for its engine. */
    source,
    /** Where the page begins. */
    start: { layer: kept.layer, head: kept.head, query: kept.query, key: kept.key },

    /**
     * Python's answer to a call, or undefined where only Python knows it.
     * @param {string} method @param {Record<string, any>} [payload]
     */
    answer(method, payload = {}) {
      const { colormap = COLORMAP } = payload;
      if (!Object.hasOwn(answers, method) || colormap.replace(/_r$/u, '') !== COLORMAP) return undefined;
      const known = Object.entries(payload).every(
        ([name, value]) => FREE.includes(name) || value === undefined || value === MADE_FOR[name],
      );
      return known ? answers[method](payload) : undefined;
    },
  };
}
