/** The least that a wait for the GPU takes in this browser, with which the time of a call that is waited for is compared. */

const WAITS = 20;
const ROUNDS = 6;

/**
 * Microseconds of `mapAsync` on a tiny buffer of a GPU that has nothing to do: one message to the browser's GPU process
 * and its answer. The best of several rounds, each the mean of waits in a row, as clocks of pages are coarse.
 */
export async function leastWait() {
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' });
  if (!adapter) throw new Error('no graphics adapter was found');
  const device = await adapter.requestDevice();
  try {
    const buffer = device.createBuffer({ label: 'floor', size: 4, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    let least = Infinity;
    for (let round = 0; round < ROUNDS; round++) {
      const begun = performance.now();
      for (let wait = 0; wait < WAITS; wait++) {
        await buffer.mapAsync(GPUMapMode.READ);
        buffer.unmap();
      }
      least = Math.min(least, (1000 * (performance.now() - begun)) / WAITS);
    }
    return least;
  } finally {
    device.destroy();
  }
}
