import { describe, expect, it, vi } from 'vitest';
import { Queue } from '../src/gpu/queue.js';

function recording() {
  const device = {
    queue: { submit: vi.fn(), writeBuffer: vi.fn(), onSubmittedWorkDone: vi.fn(async () => {}) },
    pushErrorScope: vi.fn(),
    popErrorScope: vi.fn(async () => null),
  };
  const queue = new Queue(/** @type {any} */ (device), false, () => false);
  const encoder = /** @type {any} */ ({ finish: () => 'commands' });
  return { device, queue, encoder };
}

describe('Queue', () => {
  it('waits only for work that is not known to be done', async () => {
    const { device, queue, encoder } = recording();
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).not.toHaveBeenCalled();
    queue.submit(encoder);
    await queue.idle();
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).toHaveBeenCalledTimes(1);
  });

  it('knows from a read-back that earlier work is done, but not work that came after it', async () => {
    const { device, queue, encoder } = recording();
    queue.submit(encoder);
    const mapped = queue.after(Promise.resolve('bytes'));
    queue.submit(encoder);
    expect(await mapped).toBe('bytes');
    await queue.idle();
    expect(device.queue.onSubmittedWorkDone).toHaveBeenCalledTimes(1);
  });

  it('passes on what goes wrong with what it waits for', async () => {
    const { queue } = recording();
    await expect(queue.polled(Promise.reject(new Error('lost')))).rejects.toThrow('lost');
  });
});
