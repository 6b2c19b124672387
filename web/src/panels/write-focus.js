/** The keyboard's place in a panel whose buttons are disabled while it is busy. */

/**
 * Browsers move the focus to the page when its element is disabled; here it returns when the element is enabled again,
 * unless the visitor has gone elsewhere meanwhile.
 * @param {HTMLElement} element
 */
export function keepFocus(element) {
  /** @type {HTMLElement | null} */
  let last = null;
  element.addEventListener('focusin', ({ target }) => {
    last = /** @type {HTMLElement} */ (target);
  });
  element.addEventListener('focusout', ({ target, relatedTarget }) => {
    if (relatedTarget || !(/** @type {HTMLElement} */ (target).matches(':disabled'))) last = null;
  });
  document.addEventListener('pointerdown', ({ target }) => {
    if (last && target !== last) last = null;
  });
  const observer = new MutationObserver(() => {
    const { activeElement, body } = document;
    if (last?.matches(':enabled') && (!activeElement || activeElement === body)) last.focus({ preventScroll: true });
  });
  observer.observe(element, { attributes: true, attributeFilter: ['disabled'], subtree: true });
}
