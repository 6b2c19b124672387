/** What draw.js uses of a canvas' 2D context, writing SVG: so the same code draws the map on screen and in a file. */

import { context2d } from '../dom.js';

/** A picture of at most so many pixels is drawn as rectangles. */
const MOST_RECTS = 4096;
/** Pixels of a picture for each of the drawing's, where its own are larger: a viewer that smooths pictures then blurs their edges only. */
const SHARP = 3;
const LARGE = 1.5; // CSS pixels of a pixel that has edges to be seen

/**
 * @typedef {object} Ink
 * @property {string} fillStyle @property {string} strokeStyle @property {number} lineWidth
 * @property {string} font @property {CanvasTextAlign} textAlign @property {CanvasTextBaseline} textBaseline
 * @property {boolean} imageSmoothingEnabled
 */

const ANCHORS = /** @type {Record<string, string>} */ ({ left: 'start', right: 'end', center: 'middle' });

/** @implements {Ink} */
export class SvgPen {
  fillStyle = '#000';
  strokeStyle = '#000';
  lineWidth = 1;
  font = '12px monospace';
  /** @type {CanvasTextAlign} */
  textAlign = 'left';
  /** @type {CanvasTextBaseline} */
  textBaseline = 'alphabetic';
  imageSmoothingEnabled = true;
  globalAlpha = 1;
  /** @type {number[]} */
  #dash = [];
  #measure;
  #mostRects;
  /** @type {string[]} */
  #parts = [];
  /** @type {string[]} */
  #path = [];
  /** @type {{ transform: string, groups: number }[]} */
  #saved = [];
  #transform = '';
  #groups = 0;
  #clips = 0;

  /**
   * @param {(text: string, font: string) => number} measure the width of a text in CSS pixels
   * @param {number} [mostRects] pictures of more pixels are embedded as PNG, smaller ones are rectangles
   */
  constructor(measure, mostRects = MOST_RECTS) {
    this.#measure = measure;
    this.#mostRects = mostRects;
  }

  /**
   * The drawing as an SVG document.
   * @param {number} width @param {number} height @param {string} title
   */
  finish(width, height, title) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">` +
      `<title>${escape(title)}</title>${this.#parts.join('\n')}</svg>\n`
    );
  }

  save() {
    this.#saved.push({ transform: this.#transform, groups: this.#groups });
    this.#groups = 0;
  }

  restore() {
    if (this.#groups) this.#parts.push('</g>'.repeat(this.#groups));
    const { transform, groups } = this.#saved.pop() ?? { transform: '', groups: 0 };
    this.#transform = transform;
    this.#groups = groups;
  }

  /** @param {number} x @param {number} y */
  translate(x, y) {
    this.#transform += `translate(${tidy(x)} ${tidy(y)})`;
  }

  /** @param {number} radians */
  rotate(radians) {
    if (radians) this.#transform += `rotate(${tidy((radians * 180) / Math.PI)})`;
  }

  /** @param {number[]} lengths of strokes and gaps, none for a whole line */
  setLineDash(lengths) {
    this.#dash = lengths;
  }

  beginPath() {
    this.#path = [];
  }

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.#path.push(`M${tidy(x)} ${tidy(y)}`);
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.#path.push(`L${tidy(x)} ${tidy(y)}`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  rect(x, y, width, height) {
    this.#path.push(`M${tidy(x)} ${tidy(y)}h${tidy(width)}v${tidy(height)}h${tidy(-width)}z`);
  }

  clip() {
    // Several exported maps may be put into one document, where an id must be unique.
    const id = `clip-${Math.random().toString(36).slice(2, 10)}-${++this.#clips}`;
    this.#parts.push(`<clipPath id="${id}"><path d="${this.#path.join('')}"/></clipPath><g clip-path="url(#${id})">`);
    this.#groups += 1;
  }

  stroke() {
    this.#parts.push(`<path d="${this.#path.join('')}" fill="none"${this.#pencil()}/>`);
  }

  clearRect() {}

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  fillRect(x, y, width, height) {
    this.#parts.push(`<rect${box(x, y, width, height)} fill="${this.fillStyle}"${this.#see('fill')}/>`);
  }

  /** @param {number} x @param {number} y @param {number} width @param {number} height */
  strokeRect(x, y, width, height) {
    this.#parts.push(`<rect${box(x, y, width, height)} fill="none"${this.#pencil()}/>`);
  }

  /** @param {HTMLCanvasElement} image @param {number} x @param {number} y @param {number} width @param {number} height */
  drawImage(image, x, y, width, height) {
    if (image.width * image.height <= this.#mostRects) return this.#drawCells(image, x, y, width / image.width, height / image.height);
    const pixels = enlarged(image, SHARP * width).toDataURL('image/png');
    this.#parts.push(
      `<image${box(x, y, width, height)} preserveAspectRatio="none" style="image-rendering:pixelated" href="${pixels}"/>`,
    );
  }

  /** A small picture's pixels as rectangles, which stay sharp at any size. @param {HTMLCanvasElement} image @param {number} x @param {number} y @param {number} across of a pixel @param {number} down */
  #drawCells(image, x, y, across, down) {
    const { data, width } = context2d(image).getImageData(0, 0, image.width, image.height);
    this.#parts.push('<g shape-rendering="crispEdges">');
    for (let i = 0; i < data.length / 4; i++) {
      const [red, green, blue, alpha] = data.subarray(4 * i, 4 * i + 4);
      const at = box(x + (i % width) * across, y + Math.floor(i / width) * down, across, down);
      if (alpha) this.#parts.push(`<rect${at} fill="rgb(${red},${green},${blue})"/>`);
    }
    this.#parts.push('</g>');
  }

  /** @param {string} text @param {number} x @param {number} y */
  fillText(text, x, y) {
    const turn = this.#transform && ` transform="${this.#transform}"`;
    const middle = this.textBaseline === 'middle' ? ' dominant-baseline="central"' : '';
    this.#parts.push(
      `<text x="${tidy(x)}" y="${tidy(y)}"${turn}${middle} text-anchor="${ANCHORS[this.textAlign] ?? 'start'}"` +
        ` fill="${this.fillStyle}" style="font:${escape(this.font)}">${escape(text)}</text>`,
    );
  }

  /** @param {string} text */
  measureText(text) {
    return { width: this.#measure(text, this.font) };
  }

  #pencil() {
    const dashes = this.#dash.length ? ` stroke-dasharray="${this.#dash.join(' ')}"` : '';
    return ` stroke="${this.strokeStyle}" stroke-width="${tidy(this.lineWidth)}"${dashes}${this.#see('stroke')}`;
  }

  /** @param {'fill' | 'stroke'} what */
  #see(what) {
    return this.globalAlpha < 1 ? ` ${what}-opacity="${tidy(this.globalAlpha)}"` : '';
  }
}

/** A picture with every pixel as a square of several, or the picture itself where it is as wide as that already. @param {HTMLCanvasElement} image @param {number} wide in pixels at least */
function enlarged(image, wide) {
  if (!(wide / SHARP / image.width > LARGE)) return image;
  const times = Math.ceil(wide / image.width);
  const canvas = document.createElement('canvas');
  canvas.width = times * image.width;
  canvas.height = times * image.height;
  const context = context2d(canvas);
  context.imageSmoothingEnabled = false;
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** @param {number} x @param {number} y @param {number} width @param {number} height */
function box(x, y, width, height) {
  return ` x="${tidy(x)}" y="${tidy(y)}" width="${tidy(width)}" height="${tidy(height)}"`;
}

/** @param {number} value */
function tidy(value) {
  return Number(value.toFixed(3));
}

/** Escapes a text for XML; characters that XML cannot express become U+FFFD. @param {string} text */
function escape(text) {
  return text
    .replace(/[\0-\x08\v\f\x0E-\x1F\uFFFE\uFFFF]|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD')
    .replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
}
