import { expect, test, vi } from 'vitest';
import { withNews } from '../src/runtime/client.js';

test('news that comes after the answer is not passed on', async () => {
  const seen = vi.fn();
  /** @type {((...news: any[]) => void) | undefined} */
  let report;
  const answer = await withNews(seen, async (news) => {
    report = news;
    report?.('run', 1);
    return 'answer';
  });
  report?.('run', 2);
  expect(answer).toBe('answer');
  expect(seen.mock.calls).toEqual([['run', 1]]);
});

test('nor is news that comes after a failure', async () => {
  const seen = vi.fn();
  /** @type {((...news: any[]) => void) | undefined} */
  let report;
  const failing = withNews(seen, async (news) => {
    report = news;
    throw new Error('no');
  });
  await expect(failing).rejects.toThrow('no');
  report?.('late');
  expect(seen).not.toHaveBeenCalled();
});

test('without a listener there is none to call', async () => {
  expect(await withNews(undefined, async (news) => news)).toBe(undefined);
});
