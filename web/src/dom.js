/** Small helpers to make elements. Text always becomes text nodes: nothing here parses HTML. */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Makes an element. `on…` are listeners, `class` and `style` are themselves, known properties are set as such, the
 * rest are attributes (true = present, false and null = absent).
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProp(element, name, value);
  element.append(...children.flat().filter(isShown).map(toNode));
  return element;
}

/** @param {HTMLElement} element @param {string} name @param {any} value */
function setProp(element, name, value) {
  if (name.startsWith('on')) element.addEventListener(name.slice(2).toLowerCase(), value);
  else if (name === 'class') element.className = value;
  else if (name === 'dataset') Object.assign(element.dataset, value);
  else if (name === 'style') for (const [key, v] of Object.entries(value)) element.style.setProperty(key, String(v));
  else if (name in element && !name.startsWith('aria') && name !== 'list') /** @type {any} */ (element)[name] = value;
  else if (value === true) element.setAttribute(name, '');
  else if (value !== false && value != null) element.setAttribute(name, String(value));
}

/** @param {Child} child */
function isShown(child) {
  return child !== null && child !== undefined && child !== false;
}

/** @param {any} child @returns {Node} */
function toNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/**
 * Replaces what an element contains.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter(isShown).map(toNode));
}

/** A line icon from path data on a 16 × 16 grid. @param {string} d */
export function icon(d) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  path.setAttribute('d', d);
  svg.append(path);
  return svg;
}

export const ICONS = {
  plus: 'M8 3v10M3 8h10',
  minus: 'M3 8h10',
  fit: 'M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3',
  play: 'M5 3.5v9l7-4.5z',
  pause: 'M5.5 3.5v9M10.5 3.5v9',
  back: 'M10 3.5 5 8l5 4.5',
  forward: 'M6 3.5 11 8l-5 4.5',
  first: 'M11 3.5 6 8l5 4.5M4.5 3.5v9',
  last: 'M5 3.5 10 8l-5 4.5M11.5 3.5v9',
  save: 'M8 2.5v7.5M5 7l3 3 3-3M3 12v1.5h10V12',
  copy: 'M5.5 5.5h7v8h-7zM3.5 10.5v-8h7',
  table: 'M2.5 3.5h11v9h-11zM2.5 6.5h11M6.5 6.5v6M2.5 9.5h11',
  close: 'M4.5 4.5l7 7M11.5 4.5l-7 7',
  link: 'M7 9a2.5 2.5 0 0 0 3.6 0l2-2A2.5 2.5 0 0 0 9 3.4l-.9.9M9 7a2.5 2.5 0 0 0-3.6 0l-2 2A2.5 2.5 0 0 0 7 12.6l.9-.9',
  sun: 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7',
};

let counter = 0;

/**
 * A row of choices of which one holds.
 * @param {string} label
 * @param {{ value: string, label: string, title?: string }[]} options
 * @param {string} chosen
 * @param {(value: string) => void} onChange
 */
export function segmented(label, options, chosen, onChange) {
  const name = `choice-${++counter}`;
  const group = h(
    'div',
    { class: 'segmented', role: 'radiogroup', 'aria-label': label },
    options.map((option) =>
      h(
        'label',
        { title: option.title ?? '' },
        h('input', {
          type: 'radio',
          name,
          value: option.value,
          checked: option.value === chosen,
          onchange: () => onChange(option.value),
        }),
        h('span', null, option.label),
      ),
    ),
  );
  return group;
}

/** @param {HTMLElement} group @param {string} value */
export function choose(group, value) {
  for (const input of group.querySelectorAll('input')) input.checked = input.value === value;
}

/**
 * A canvas' context that draws on the CPU: the GPU's process may be busy with our kernels, and would make the page's
 * main thread wait for it.
 * @param {HTMLCanvasElement} canvas
 */
export function context2d(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { willReadFrequently: true }));
}

/** How often each canvas was painted. @type {WeakMap<HTMLCanvasElement, number>} */
export const paints = new WeakMap();

/**
 * A canvas that shows RGBA pixels one to one.
 * @param {HTMLCanvasElement} canvas
 * @param {Uint8Array<ArrayBuffer>} rgba
 * @param {number} width
 * @param {number} height
 */
export function putPixels(canvas, rgba, width, height) {
  canvas.width = width;
  canvas.height = height;
  const pixels = new ImageData(new Uint8ClampedArray(rgba.buffer, rgba.byteOffset, 4 * width * height), width, height);
  context2d(canvas).putImageData(pixels, 0, 0);
  paints.set(canvas, (paints.get(canvas) ?? 0) + 1);
}

/** Calls a function once what is drawn in the next frame is on screen. @param {() => void} then */
export function afterPaint(then) {
  requestAnimationFrame(() => requestAnimationFrame(then));
}
