/**
 * The pipelines of the first map, compiled while Python is still starting: those that the last visit needed, or where
 * nothing was kept, those that the build found for adapters like this one (scripts/packing.py). What Python asks for
 * decides: a text that it does not ask for is never used.
 */

const NOTE = 'pipelines';
/** A first map needs two or three; more would only delay those. */
const MOST = 16;
const MOST_CHARACTERS = 1 << 20;

/**
 * @typedef {import('../gpu/pipelines.js').Source} Source
 * @typedef {{ info(): string, asked: readonly Source[], compileEarly(sources: Source[]): Promise<void> }} Device
 * @typedef {{ software: boolean, subgroup_size: number, features: string[], sources: Source[] }} Listed
 * @typedef {{ load(key: string): Promise<string>, save(key: string, text: string): Promise<void> }} Notes
 */

/**
 * @param {Notes} notes
 * @param {{ build: () => Promise<string>, listed: () => Promise<Listed[]> }} site what names the build of the page's Python,
 *   and the build's own list
 */
export function createEarlyPipelines(notes, site) {
  /** @type {Device | undefined} */
  let device;
  let last = '';

  /** @param {string} info @returns {Promise<Source[]>} */
  async function sourcesFor(info) {
    const [build, text] = await Promise.all([site.build(), notes.load(NOTE)]);
    const kept = readKept(text);
    if (kept?.build === build && kept.adapter === info) {
      last = text;
      return kept.sources;
    }
    return (await site.listed()).find((listed) => isLike(listed, JSON.parse(info)))?.sources ?? [];
  }

  return {
    /** Resolves when all are compiled; never rejects, as everything works without. @param {Device} on a new device */
    async compile(on) {
      device = on;
      try {
        await on.compileEarly((await sourcesFor(on.info())).slice(0, MOST));
      } catch {
        // Python asks for its pipelines as if there were no list.
      }
    },

    /** The first map is drawn: remembers what it needed. The result keeps that for the next visit. */
    drawn() {
      const sources = device?.asked.slice(0, MOST) ?? [];
      return async () => {
        try {
          const text = JSON.stringify({ build: await site.build(), adapter: device?.info(), sources });
          if (sources.length && text !== last && text.length <= MOST_CHARACTERS) await notes.save(NOTE, text);
        } catch {
          // The next visit has the build's list.
        }
      };
    },
  };
}

/** @param {string} text @returns {{ build: string, adapter: string, sources: Source[] } | undefined} */
function readKept(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // nothing was kept
  }
}

/**
 * Whether the kernels chosen for one adapter of the list are those for this one.
 * @param {Listed} listed
 * @param {{ software: boolean, subgroup_min_size: number, features: string[] }} info
 */
function isLike(listed, info) {
  return (
    listed.software === info.software &&
    listed.subgroup_size <= info.subgroup_min_size &&
    listed.features.every((feature) => info.features.includes(feature))
  );
}
