/** Errors of the GPU, kept until they are taken. */

/** @typedef {{ kind: string, label: string, message: string, line: number }} ReportedError */

export class Errors {
  /** @type {Set<Promise<unknown>>} error scopes that have not answered yet */
  #scopes = new Set();
  /** @type {ReportedError[]} */
  #errors = [];
  #device;

  /** @param {GPUDevice} device */
  constructor(device) {
    this.#device = device;
    device.addEventListener('uncapturederror', (event) => {
      event.preventDefault();
      this.#report('device', /** @type {GPUUncapturedErrorEvent} */ (event).error);
    });
  }

  /** @param {ReportedError} error */
  add(error) {
    this.#errors.push(error);
  }

  /** Whether a scope has not answered yet, or an error has not been taken. */
  get areAwaited() {
    return this.#scopes.size > 0 || this.#errors.length > 0;
  }

  /** Resolves once all scopes up to now have answered, so that their errors can be taken. */
  async settled() {
    await Promise.all(this.#scopes);
    // What follows from an error, such as a write to a buffer that could not be made, is told later, as an event.
    if (this.#errors.length) {
      this.guarded('', ['validation'], () => {});
      await Promise.all(this.#scopes);
      await new Promise((resolve) => setTimeout(resolve));
    }
  }

  /** The errors since the last call. */
  take() {
    const errors = this.#errors;
    this.#errors = [];
    return errors;
  }

  /**
   * Runs `work` inside error scopes; what they catch is reported with `label`.
   * @template T
   * @param {string} label @param {GPUErrorFilter[]} filters @param {() => T} work
   * @returns {T}
   */
  guarded(label, filters, work) {
    for (const filter of filters) this.#device.pushErrorScope(filter);
    try {
      return work();
    } finally {
      for (let i = 0; i < filters.length; i++) {
        this.wait(
          this.#device.popErrorScope().then((error) => {
            if (error) this.#report(label, error);
          }),
        );
      }
    }
  }

  /** Lets `settled` wait for a scope. @param {Promise<unknown>} promise */
  wait(promise) {
    // A lost device rejects its scopes; `DeviceBridge.lost` gives the reason.
    /** @type {Promise<unknown>} */
    const answered = promise.catch(() => {}).then(() => this.#scopes.delete(answered));
    this.#scopes.add(answered);
  }

  /** @param {string} label @param {GPUError} error */
  #report(label, error) {
    const kind =
      error instanceof GPUOutOfMemoryError
        ? 'out-of-memory'
        : error instanceof GPUInternalError
          ? 'internal'
          : 'validation';
    this.add({ kind, label, message: error.message, line: 0 });
  }
}
