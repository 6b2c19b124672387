/**
 * What the page's address may ask for: `?only=minilm,decode` (names of workloads; `model` is the language model, with rows such as `model-prefill`), `?size=small|full`, `?peers=0`,
 * `?naive=0`, `?wall=0`, `?tune=0`, `?tiles=1` (times every tile of the table in place of peers, naive kernels, wall times and starts), `?variant=tiled`, `?tile={"rows":8}` (fields to replace in every tile that is chosen),
 * `?splits=64` (of decode), `?starts=N` (how often the start of the main page is measured; once unless `only` is given; `?only=none&starts=5` measures nothing else), `?report=URL` (lines are POSTed there, DONE is the last; starts at once), `?start`.
 */

/** @param {string} search */
export function readOptions(search) {
  const asked = new URLSearchParams(search);
  const size = asked.get('size');
  const tiles = asked.get('tiles') === '1';
  const wants = (/** @type {string} */ name) => (asked.has(name) ? asked.get(name) !== '0' : !tiles);
  return {
    only: (asked.get('only') ?? '').split(',').filter(Boolean),
    size: /** @type {'small' | 'full' | null} */ (size === 'small' || size === 'full' ? size : null),
    peers: !wants('peers') ? [] : asked.get('peers')?.split(',').filter((name) => name !== '1') ?? null,
    naive: wants('naive'),
    wall: wants('wall'),
    tiles,
    tune: asked.get('tune') !== '0',
    variant: asked.get('variant') ?? '',
    tile: asked.get('tile') ?? '',
    splits: asked.get('splits') ? Number(asked.get('splits')) : null,
    starts: asked.has('starts') ? Number(asked.get('starts')) || 0 : Number(!asked.get('only') && !tiles),
    nothingElse: asked.get('only') === 'none',
    report: asked.get('report'),
    start: asked.has('report') || asked.has('start'),
    given: Object.fromEntries([...asked].filter(([name]) => name !== 'report')),
  };
}

/** @typedef {ReturnType<typeof readOptions>} Options */
