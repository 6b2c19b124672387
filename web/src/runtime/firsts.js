/** Remembers which things have happened once, and lets others wait for that. */
export function createFirsts() {
  /** @type {Map<string, { promise: Promise<void>, resolve: () => void }>} */
  const known = new Map();

  /** @param {string} name */
  function get(name) {
    const found = known.get(name);
    if (found) return found;
    let resolve = () => {};
    const promise = /** @type {Promise<void>} */ (new Promise((done) => (resolve = done)));
    const made = { promise, resolve };
    known.set(name, made);
    return made;
  }

  return {
    /** @param {string} name */
    came: (name) => get(name).resolve(),
    /** Resolves when `name` has come once, or after so many milliseconds. @param {string} name @param {number} most */
    wait: (name, most) => Promise.race([get(name).promise, new Promise((done) => setTimeout(done, most))]),
  };
}
