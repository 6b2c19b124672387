/** The adapter: why there is none, which limits and features are requested, and its description for Python. */

// https://github.com/gpuweb/gpuweb/blob/main/proposals/subgroup-matrix.md
const SUBGROUP_MATRIX = 'chromium-experimental-subgroup-matrix';
const OPTIONAL_FEATURES = /** @type {GPUFeatureName[]} */ ([
  'timestamp-query',
  'subgroups',
  'shader-f16',
  SUBGROUP_MATRIX,
]);

const LIMITS = /** @type {const} */ ([
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'minStorageBufferOffsetAlignment',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupsPerDimension',
]);

/** Firefox has settings of its own, and notices later that work is done (queue.js). */
export const isFirefox = () => /\bFirefox\//u.test(globalThis.navigator?.userAgent);

/** Says in one sentence why there is no WebGPU here and what to do, or '' when there may be. */
export function whyNoWebGPU() {
  if (!globalThis.isSecureContext) {
    return 'WebGPU needs a secure page: open it over https, or from localhost.';
  }
  if (!navigator.gpu && isFirefox()) {
    return 'This Firefox has WebGPU switched off: set dom.webgpu.enabled to true in about:config, and load the page again.';
  }
  if (!navigator.gpu) {
    return (
      'This browser offers no WebGPU here. It is in Chrome and Edge 113+, Safari 26+ and Firefox 141+ ' +
      '(on Linux, Chrome may need chrome://flags/#enable-unsafe-webgpu).'
    );
  }
  return '';
}

/** Resolves with a device that has the adapter's own limits and optional features; rejects with what to do. */
export async function requestDevice() {
  const reason = whyNoWebGPU();
  if (reason) throw new Error(reason);
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) {
    throw new Error(
      'WebGPU is available, but no graphics adapter was found: the driver may be missing or blocked; ' +
        (isFirefox() ? 'about:support says why, under Graphics.' : 'chrome://gpu says why.'),
    );
  }
  const device = await adapter.requestDevice({
    requiredFeatures: OPTIONAL_FEATURES.filter((feature) => adapter.features.has(feature)),
    requiredLimits: limitsOf(adapter),
  });
  return { adapter, device };
}

/** The adapter's description, with the keys that py_attn/gpu expects. @param {GPUAdapter} adapter @param {GPUDevice} device */
export function describeAdapter(adapter, device) {
  const { info } = adapter;
  const subgroups = device.features.has('subgroups');
  return {
    vendor: info.vendor,
    architecture: info.architecture,
    description: info.description,
    software: info.isFallbackAdapter,
    // A browser lists them in another order each time.
    features: [...device.features, ...(navigator.gpu.wgslLanguageFeatures ?? [])].sort(),
    limits: limitsOf(adapter),
    subgroup_min_size: subgroups ? info.subgroupMinSize : 0,
    subgroup_max_size: subgroups ? info.subgroupMaxSize : 0,
    matrix_configs: device.features.has(SUBGROUP_MATRIX) ? matrixConfigs(info) : [],
  };
}

/** @param {GPUAdapter} adapter @returns {Record<string, number>} */
function limitsOf({ limits }) {
  return Object.fromEntries(LIMITS.map((name) => [name, limits[name]]));
}

/** The subgroup matrices of an adapter: component type, result type, M, N, K. @param {GPUAdapterInfo} info */
function matrixConfigs(info) {
  const { subgroupMatrixConfigs = [] } =
    /** @type {{ subgroupMatrixConfigs?: { componentType: string, resultComponentType: string, M: number, N: number, K: number }[] }} */ (
      info
    );
  return [...subgroupMatrixConfigs].map((c) => [c.componentType, c.resultComponentType, c.M, c.N, c.K]);
}
