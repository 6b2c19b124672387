/**
 * Maps on paper have the colours of the light theme, whatever the page's is. Python has coloured them for the screen, and
 * there is no time to ask it when the browser prints, so each colour is replaced by the one that the same weight has there.
 */

import { context2d, paints } from './dom.js';
import { latest } from './latest.js';
import { isDark, themedColormap } from './theme.js';
import { colorAt } from './views/shade.js';

/** Colours that are further from each of the dark ones, in steps of a channel, are no weight's. */
const FAR = 6;

/** Colours of the dark theme, and the same weights' in the light one, RGBA each. */
let dark = new Uint8Array();
let light = new Uint8Array();
/** What has been looked up. @type {Map<number, number>} by red, green and blue, the place of a light colour, -1 for none */
const places = new Map();

/** @param {Uint8Array[]} from @param {Uint8Array[]} to */
export function setPaperColors(from, to) {
  [dark, light] = [join(from), join(to)];
  places.clear();
}

/** @param {Uint8Array[]} parts */
const join = (parts) => Uint8Array.from(parts.flatMap((part) => [...part]));

/** @param {number} red @param {number} green @param {number} blue */
function placeOf(red, green, blue) {
  const name = (red << 16) | (green << 8) | blue;
  let place = places.get(name);
  if (place === undefined) {
    place = -1;
    let nearest = FAR + 1;
    for (let at = 0; at < dark.length; at += 4) {
      const far = Math.max(Math.abs(dark[at] - red), Math.abs(dark[at + 1] - green), Math.abs(dark[at + 2] - blue));
      if (far < nearest) [nearest, place] = [far, at];
    }
    places.set(name, place);
  }
  return place;
}

/** A copy in the colours for paper. @param {ArrayLike<number>} rgba */
export function paperPixels(rgba) {
  const pixels = Uint8ClampedArray.from(rgba);
  for (let at = 0; at < pixels.length; at += 4) {
    const place = pixels[at + 3] ? placeOf(pixels[at], pixels[at + 1], pixels[at + 2]) : -1;
    if (place >= 0) pixels.set(light.subarray(place, place + 3), at);
  }
  return pixels;
}

/** @type {WeakMap<import('./heatmap/draw.js').Picture, import('./heatmap/draw.js').Picture>} */
const copies = new WeakMap();

/** A map's picture in the colours for paper. @param {import('./heatmap/draw.js').Picture | null} picture */
export function paperPicture(picture) {
  if (!picture || !dark.length) return picture;
  const known = copies.get(picture);
  if (known) return known;
  const { width, height } = picture.canvas;
  const canvas = document.createElement('canvas');
  Object.assign(canvas, { width, height });
  const pixels = context2d(picture.canvas).getImageData(0, 0, width, height);
  pixels.data.set(paperPixels(pixels.data));
  context2d(canvas).putImageData(pixels, 0, 0);
  const { written } = picture;
  const copy = { ...picture, canvas, written: written && { ...written, rgba: paperPixels(written.rgba) } };
  copies.set(picture, copy);
  return copy;
}

/**
 * Keeps what is printed of a page in the colours for paper. The large maps draw themselves anew (heatmap/map.js), so this is
 * to be called before they are made.
 * @param {HTMLElement} page @param {import('./store.js').Model} store
 */
export function keepPaperLight(page, store) {
  const load = latest(
    async () => {
      const { style, info } = store.state;
      const of = (/** @type {boolean} */ inTheDark, /** @type {string} */ show) =>
        store.call('legend', { colormap: themedColormap(style.colormap, inTheDark), scale: 'linear', show, maximum: 1 });
      // The colours of shares have a sign; only Python knows them.
      const shows = info ? ['weights', 'gradient'] : ['weights'];
      const legends = isDark() ? await Promise.all([true, false].map((way) => Promise.all(shows.map((show) => of(way, show))))) : [[], []];
      const [from, to] = legends.map((some) => some.map(({ rgba }) => rgba));
      setPaperColors(from, to);
    },
    () => {},
  );
  store.on(['style', 'info'], () => load(null));
  load(null);
  /** What brings the screen's colours back. @type {(() => void)[]} */
  let undo = [];
  matchMedia('print').addEventListener('change', ({ matches }) => {
    for (const back of undo.splice(0)) back();
    if (!matches || !dark.length) return;
    const canvases = /** @type {NodeListOf<HTMLCanvasElement>} */ (page.querySelectorAll('canvas:not(.heatmap, .output canvas)'));
    const tokens = /** @type {NodeListOf<HTMLElement>} */ (page.querySelectorAll('[style*="--ground"]'));
    undo = [...[...canvases].map(swapCanvas), ...[...tokens].map(swapGround)];
  });
}

/** @param {HTMLCanvasElement} canvas @returns {() => void} brings the screen's colours back */
function swapCanvas(canvas) {
  const { width, height } = canvas;
  const context = context2d(canvas);
  const painted = paints.get(canvas);
  // Canvases that draw something else than pictures of weights have their own colours.
  if (!painted || !width || !height) return () => {};
  const before = context.getImageData(0, 0, width, height);
  context.putImageData(new ImageData(paperPixels(before.data), width, height), 0, 0);
  return () => paints.get(canvas) === painted && context.putImageData(before, 0, 0);
}

/** A token on the colour of its weight. @param {HTMLElement} token @returns {() => void} brings the screen's colours back */
function swapGround({ style }) {
  const [ground, ink] = ['--ground', '--ink-on'].map((name) => style.getPropertyValue(name));
  const channels = (ground.match(/\d+/gu) ?? []).map(Number);
  if (channels.length !== 3) return () => {};
  const colors = colorAt(paperPixels(Uint8Array.from([...channels, 255])), 0);
  style.setProperty('--ground', colors.ground);
  style.setProperty('--ink-on', colors.ink);
  return () => {
    // It may have been coloured anew meanwhile.
    if (style.getPropertyValue('--ground') !== colors.ground) return;
    style.setProperty('--ground', ground);
    style.setProperty('--ink-on', ink);
  };
}
