/** The links to the page's sections, which stay in reach, and say which section is on screen. */

import { fill, h } from './dom.js';

/** Sections in their order on the page; one that is not there has no link. */
const SECTIONS = [
  ['write', 'Write'],
  ['overview', 'Overview'],
  ['focus', 'Focus'],
  ['compare', 'Compare'],
  ['edit', 'Edit'],
  ['kernel', 'Kernel'],
  ['decode', 'Decode'],
  ['console', 'Python'],
];

/**
 * @param {HTMLElement} nav filled with the links, once the sections are on the page
 */
export function mountNavigation(nav) {
  /** @type {Map<Element, HTMLElement>} */
  const links = new Map();
  for (const [id, name] of SECTIONS) {
    const section = document.getElementById(id);
    if (section) links.set(section, h('a', { href: `#${id}` }, name));
  }
  fill(nav, ...links.values(), h('a', { href: './bench.html' }, 'Bench'));

  /** @type {Map<Element, number>} how much of a section is in the upper half of the window */
  const heights = new Map();
  /** @type {HTMLElement | undefined} */
  let marked;
  const mark = () => {
    // Nothing is marked at the top of the page, where no section has been gone to.
    const [best] = scrollY < 40 ? [] : [...heights].filter(([, height]) => height > 0).sort((a, b) => b[1] - a[1]);
    const link = best && links.get(best[0]);
    if (link === marked) return;
    marked?.removeAttribute('aria-current');
    link?.setAttribute('aria-current', 'location');
    marked = link;
    if (link) nav.scrollTo({ left: link.offsetLeft - nav.clientWidth / 2 + link.clientWidth / 2 });
  };
  const steps = Array.from({ length: 21 }, (_, i) => i / 20);
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { target, intersectionRect } of entries) heights.set(target, intersectionRect.height);
      mark();
    },
    { rootMargin: '-56px 0px -45% 0px', threshold: steps },
  );
  for (const section of links.keys()) observer.observe(section);
}
