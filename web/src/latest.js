/**
 * Runs one request at a time; of the requests that arrive meanwhile, only the last is run.
 *
 * @template A
 * @param {(argument: A) => Promise<void>} work
 * @param {(error: unknown) => void} onError
 * @returns {(argument: A) => void}
 */
export function latest(work, onError) {
  let running = false;
  /** @type {{ argument: A } | null} */
  let next = null;

  async function drain() {
    running = true;
    while (next) {
      const { argument } = next;
      next = null;
      try {
        await work(argument);
      } catch (error) {
        onError(error);
      }
    }
    running = false;
  }

  return (argument) => {
    next = { argument };
    if (!running) void drain();
  };
}
