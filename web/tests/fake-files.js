import { vi } from 'vitest';

/** An origin private file system in memory, with as much of it as kept-files.js needs. @returns {Map<string, Uint8Array<ArrayBuffer>>} its files */
export function fakeFiles() {
  /** @type {Map<string, Uint8Array<ArrayBuffer>>} */
  const files = new Map();
  const missing = (/** @type {string} */ name) => new DOMException(`no file ${name}`, 'NotFoundError');
  class FakeHandle {
    /** @param {string} name */
    constructor(name) {
      this.name = name;
    }

    async createSyncAccessHandle() {
      const { name } = this;
      const content = () => /** @type {Uint8Array<ArrayBuffer>} */ (files.get(name));
      return {
        getSize: () => content().length,
        read: (/** @type {Uint8Array} */ into) => into.set(content()),
        /** @param {Uint8Array | Uint32Array} bytes @param {{ at: number }} where */
        write(bytes, { at }) {
          const grown = new Uint8Array(Math.max(content().length, at + bytes.byteLength));
          grown.set(content());
          grown.set(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength), at);
          files.set(name, grown);
        },
        flush() {},
        close() {},
      };
    }
  }
  const folder = {
    keys: async function* () {
      yield* [...files.keys()];
    },
    removeEntry: async (/** @type {string} */ name) => void files.delete(name),
    async getFileHandle(/** @type {string} */ name, { create = false } = {}) {
      if (!files.has(name) && !create) throw missing(name);
      if (!files.has(name)) files.set(name, new Uint8Array());
      return new FakeHandle(name);
    },
  };
  vi.stubGlobal('FileSystemFileHandle', FakeHandle);
  vi.stubGlobal('navigator', { storage: { getDirectory: async () => ({ getDirectoryHandle: async () => folder }) } });
  return files;
}
