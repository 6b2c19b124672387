/** The panels' calls to Python: over the worker on the page, over the kernel's connection in a notebook. */

/**
 * @typedef {import('./types').Style} Style
 * @typedef {import('./types').SourceInfo} SourceInfo
 * @typedef {import('./store.js').Compare} Compare
 * @typedef {(method: string, payload?: Record<string, any>, onProgress?: (...news: any[]) => void) => Promise<any>} Call
 * @typedef {ReturnType<typeof createApi>} Api
 */

/** @param {Call} call */
export function createApi(call) {
  return {
    /** What is open, on the device that there is now; null where it cannot be. @returns {Promise<SourceInfo | null>} */
    openAgain: () => call('open_again', {}),
    /** @param {string} text @returns {Promise<SourceInfo>} */
    openText: (text) => call('open_text', { text }),
    /** @param {import('./types').SyntheticShape} shape @returns {Promise<SourceInfo>} */
    openSynthetic: (shape) => call('open_synthetic', shape),
    /**
     * @param {Blob} data @param {string} name @param {import('./types').FileChoices} [choices]
     * @returns {Promise<import('./types').OpenedFile>}
     */
    openFile: (data, name, choices) => call('open_file', { data, name, ...choices }),
    /** @param {import('./types').Holds} holds @returns {Promise<import('./types').MadeFile>} */
    makeExample: (holds) => call('make_example', { holds }),
    /** @param {import('./types').Holds} holds @returns {Promise<import('./types').MadeFile>} */
    saveSource: (holds) => call('save_source', { holds }),
    /**
     * @param {number} layer @param {Style} style
     * @param {{ size?: number, maximum?: number }} [given] cells along a side at most; what has the last colour with the range "map"
     * @returns {Promise<import('./types').Overview>}
     */
    overview: (layer, style, given) => call('overview', { layer, ...style, ...given }),
    /** @returns {Promise<import('./types').Label[]>} */
    labels: () => call('labels'),
    /** @returns {Promise<import('./types').HeadFindings | null>} null where another source was opened meanwhile */
    heads: () => call('heads'),
    /** @param {number} query @param {Style} style @returns {Promise<import('./types').OverviewRow>} */
    overviewRow: (query, style) => call('overview_row', { query, ...style }),
    /**
     * @param {{ layer: number, head: number, rows: number[], columns: number[], size: number[], edited?: boolean,
     *   over?: import('./types').Over }} part
     * @param {Style} style
     * @returns {Promise<import('./types').MapWindow>}
     */
    window: (part, style) => call('window', { ...part, ...style }),
    /**
     * @param {{ layer: number, head: number, rows: number[], columns: number[], show: import('./types').Show,
     *   over?: import('./types').Over }} part
     * @returns {Promise<import('./types').Weights>}
     */
    weights: (part) => call('weights', part),
    /**
     * @param {number} layer @param {number} head @param {number} query @param {import('./types').Show} show
     * @param {import('./types').Over} [over]
     * @returns {Promise<import('./types').Row>}
     */
    row: (layer, head, query, show, over = 'head') => call('row', { layer, head, query, show, over }),
    /**
     * @param {string} colormap @param {string} scale @param {import('./types').Show} [show]
     * @param {number} [maximum] what has the last colour
     * @returns {Promise<import('./types').Legend>}
     */
    legend: (colormap, scale, show = 'weights', maximum = 1) => call('legend', { colormap, scale, show, maximum }),
    /**
     * @param {{ heads: number[][], position: number, direction: import('./store.js').Direction, show: import('./types').Show,
     *   over: import('./types').Over, range?: 'unit' | 'map' }} given
     * @returns {Promise<import('./types').TokenWeights>}
     */
    tokenWeights: (given) => call('token_weights', given),
    /**
     * @param {{ heads: number[][], rows: number[], columns: number[], most: number, show: import('./types').Show,
     *   over: import('./types').Over, range?: 'unit' | 'map' }} part
     * @returns {Promise<import('./types').Strongest>}
     */
    strongest: (part) => call('strongest', part),
    /** @param {import('./store.js').Reading} reading @returns {Promise<SourceInfo>} */
    readAs: ({ words, special }) => call('read_as', { words, special }),
    /** @param {number} layer @param {number} head @param {import('./types').Over} over @returns {Promise<import('./types').Margins>} */
    margins: (layer, head, over) => call('margins', { layer, head, over }),
    /** @param {{ layer: number, head: number, query: number, key: number }} cell @returns {Promise<import('./types').Explanation>} */
    explain: (cell) => call('explain', cell),
    /**
     * @param {{ layer: number, head: number, other: Compare, rows: number[], columns: number[], other_rows: number[],
     *   other_columns: number[], size: number[], maximum: number, span: number }} part
     * @param {Style} style
     * @returns {Promise<import('./types').Compared>}
     */
    compare: (part, style) => call('compare', { ...part, ...style }),
    /** @param {{ layer: number, head: number, other: Compare }} given @returns {Promise<import('./types').CompareFigures>} */
    compareFigures: (given) => call('compare_figures', given),
    /** @param {{ layer: number, head: number, other: Compare, query: number }} given @returns {Promise<import('./types').CompareRow>} */
    compareRow: (given) => call('compare_row', given),
    /** @param {string} text @param {number} layer @returns {Promise<import('./types').Edited>} */
    edit: (text, layer) => call('edit', { text, layer }),
    /**
     * @param {number} layer @param {string} variant @param {number} repeats
     * @param {(variant: string, done: number, total: number) => void} onProgress
     * @returns {Promise<import('./types').Measurement | null | undefined>} nothing where it was cancelled
     */
    measure: (layer, variant, repeats, onProgress) => call('measure', { layer, variant, repeats }, onProgress),
    /** Ends a measurement after its current run. @returns {Promise<void>} */
    cancelMeasure: () => call('cancel_measure'),
    /** @param {string} wgsl @returns {Promise<{ messages: import('./types').WgslMessage[] }>} */
    checkWgsl: (wgsl) => call('check_wgsl', { wgsl }),
    /**
     * @param {{ layer: number, of: string, wgsl: string, name: string, repeats: number }} given
     * @param {(name: string, done: number, total: number) => void} onProgress
     * @returns {Promise<import('./types').Measurement | null | undefined>}
     */
    runWgsl: (given, onProgress) => call('run_wgsl', given, onProgress),
    /** @param {{ layer: number, of: string, wgsl: string, name: string }} given @returns {Promise<{ source: string }>} */
    wgslCell: (given) => call('wgsl_cell', given),
    /** @param {string} text @param {number} position @returns {Promise<import('./editor/editor.js').Names>} */
    complete: (text, position) => call('complete', { text, position }),
    /** @param {number} layer @param {number} capacity @returns {Promise<{ length: number, capacity: number }>} */
    decodeOpen: (layer, capacity) => call('decode_open', { layer, capacity }),
    /** @param {number} position @param {number} head @param {number} splits @returns {Promise<import('./types').DecodeStep>} */
    decodeStep: (position, head, splits) => call('decode_step', { position, head, splits }),
    /**
     * @param {{ layer: number, position: number, head: number, capacity: number, dtype: string }} given
     * @returns {Promise<import('./types').CacheStep>}
     */
    decodeCache: (given) => call('decode_cache', given),
  };
}
