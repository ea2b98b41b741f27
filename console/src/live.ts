// Figures that stay fresh: polling that rests while nobody looks at the page.

import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from "react";
import { ApiError, get, type Overview, pathOf, type Sample, withQuery } from "./api";

export interface Polled<T> {
  data: T | undefined;
  error: ApiError | undefined;
  /** Asks again at once. */
  refresh: () => void;
}

function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, error instanceof Error ? error.message : String(error));
}

/** Asks for `path` now and again, not while the page is hidden. Keeps the last answer while a request fails. */
export function usePoll<T>(path: string | null, everyMs: number): Polled<T> {
  const [state, setState] = useState<{ path: string | null; data?: T; error?: ApiError }>({ path });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (path === null) return undefined;
    const controller = new AbortController();
    let timer: number | undefined;
    const ask = async () => {
      timer = undefined;
      if (!document.hidden) {
        try {
          const data = await get<T>(path, controller.signal);
          if (!controller.signal.aborted) setState({ path, data });
        } catch (error) {
          if (controller.signal.aborted) return;
          const failed = asApiError(error);
          setState((before) => (before.path === path ? { ...before, error: failed } : { path, error: failed }));
        }
      }
      if (!controller.signal.aborted) timer = window.setTimeout(ask, everyMs);
    };
    const seen = () => {
      if (document.hidden || timer === undefined) return;
      window.clearTimeout(timer);
      void ask();
    };
    document.addEventListener("visibilitychange", seen);
    void ask();
    return () => {
      controller.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [path, everyMs, round]);
  const refresh = useCallback(() => setRound((round) => round + 1), []);
  const isCurrent = state.path === path;
  return { data: isCurrent ? state.data : undefined, error: isCurrent ? state.error : undefined, refresh };
}

// --- the broker as a whole -------------------------------------------------------------------------------------

const EVERY_MS = 2_000;
/** An hour of samples at ten seconds, and the samples that were seen live. */
const SAMPLES_MAX = 360 + 1_800;

export interface Live {
  overview: Overview | undefined;
  samples: Sample[];
  error: ApiError | undefined;
}

let live: Live = { overview: undefined, samples: [], error: undefined };
const watchers = new Set<() => void>();
let timer: number | undefined;
let isAsking = false;

function tell(next: Live) {
  live = next;
  for (const watcher of watchers) watcher();
}

async function sample() {
  if (isAsking || document.hidden || watchers.size === 0) return;
  isAsking = true;
  try {
    const history = live.overview === undefined || live.error !== undefined;
    const overview = await get<Overview>(withQuery(pathOf("overview"), { history: history || undefined }));
    tell({ overview, samples: joined(live.samples, overview), error: undefined });
  } catch (error) {
    tell({ ...live, error: asApiError(error) });
  } finally {
    isAsking = false;
  }
}

function joined(before: Sample[], { history, now }: Overview): Sample[] {
  const restarted = before.length > 0 && now.enqueued_total < (before.at(-1)?.enqueued_total ?? 0);
  const kept = restarted ? [] : before;
  let all = kept;
  if (history !== undefined) {
    const rows = history.rows.map(
      (row) => Object.fromEntries(history.columns.map((column, index) => [column, row[index]])) as unknown as Sample,
    );
    const byTime = new Map([...kept, ...rows].map((sample) => [sample.at_ms, sample]));
    all = [...byTime.values()].sort((one, other) => one.at_ms - other.at_ms);
  }
  const last = all.at(-1);
  if (last !== undefined && last.at_ms >= now.at_ms) return all;
  return [...all, now].slice(-SAMPLES_MAX);
}

/** Outside of the hook: React subscribes again whenever it is given another function. */
function watch(watcher: () => void) {
  watchers.add(watcher);
  if (timer === undefined) {
    timer = window.setInterval(() => void sample(), EVERY_MS);
    document.addEventListener("visibilitychange", sample);
    void sample();
  }
  return () => {
    watchers.delete(watcher);
    if (watchers.size > 0) return;
    window.clearInterval(timer);
    timer = undefined;
    document.removeEventListener("visibilitychange", sample);
  };
}

/** Figures of the whole broker; all that show them share one poll. */
export const useLive = (): Live => useSyncExternalStore(watch, () => live);

// --- long lists ---------------------------------------------------------------------------------------------

export interface Pages<T> {
  rows: T[];
  total: number;
  hasMore: boolean;
  isLoading: boolean;
  error: ApiError | undefined;
  /** Loads the next page, if there is one. */
  more: () => void;
  /** Asks again for the pages that these rows are on. */
  refresh: (from?: number, to?: number) => void;
}

interface Loaded<T> {
  /** The pages, each with the cursor that it began at. */
  pages: { cursor: string | undefined; rows: T[] }[];
  next: string | null;
  total: number;
}

interface AnyPage<T> {
  items: T[];
  next: string | null;
  total?: number;
}

/** A list that is loaded page by page. `path` has its filter and order in it; another path is another list. */
export function usePages<T>(path: string, limit: number): Pages<T> {
  const [loaded, setLoaded] = useState<Loaded<T> | undefined>();
  const [error, setError] = useState<ApiError | undefined>();
  const [isLoading, setIsLoading] = useState(true);
  const shown = useRef(path);
  const busy = useRef(false);
  const state = useRef(loaded);
  state.current = loaded;

  const fetchPage = useCallback(
    (cursor: string | undefined) => get<AnyPage<T>>(`${path}${path.includes("?") ? "&" : "?"}limit=${limit}${cursor === undefined ? "" : `&cursor=${encodeURIComponent(cursor)}`}`),
    [path, limit],
  );

  const load = useCallback(
    async (cursor: string | undefined, place: (before: Loaded<T> | undefined, page: AnyPage<T>) => Loaded<T>) => {
      busy.current = true;
      setIsLoading(true);
      try {
        const page = await fetchPage(cursor);
        if (shown.current !== path) return;
        setLoaded((before) => place(before, page));
        setError(undefined);
      } catch (failed) {
        if (shown.current === path) setError(asApiError(failed));
      } finally {
        if (shown.current === path) {
          busy.current = false;
          setIsLoading(false);
        }
      }
    },
    [fetchPage, path],
  );

  useEffect(() => {
    shown.current = path;
    void load(undefined, (_, page) => ({
      pages: [{ cursor: undefined, rows: page.items }],
      next: page.next,
      total: page.total ?? page.items.length,
    }));
  }, [load, path]);

  const more = useCallback(() => {
    const now = state.current;
    if (busy.current || now === undefined || now.next === null) return;
    const cursor = now.next;
    void load(cursor, (before, page) => {
      const pages = [...(before?.pages ?? []), { cursor, rows: page.items }];
      const seen = pages.reduce((sum, { rows }) => sum + rows.length, 0);
      return { pages, next: page.next, total: page.total ?? seen };
    });
  }, [load]);

  const refresh = useCallback(
    (from = 0, to = Number.MAX_SAFE_INTEGER) => {
      const now = state.current;
      if (busy.current || now === undefined || document.hidden) return;
      let first = 0;
      for (const [index, { cursor, rows }] of now.pages.entries()) {
        const last = first + rows.length;
        if (first <= to && from <= last) {
          void load(cursor, (before, page) => {
            const pages = [...(before?.pages ?? [])];
            if (pages[index]?.cursor !== cursor) return before ?? { pages: [], next: null, total: 0 };
            pages[index] = { cursor, rows: page.items };
            const isLast = index === pages.length - 1;
            return {
              pages: isLast || page.next !== null ? pages : pages.slice(0, index + 1),
              next: isLast || page.next === null ? page.next : (before?.next ?? null),
              total: page.total ?? before?.total ?? page.items.length,
            };
          });
        }
        first = last;
      }
    },
    [load],
  );

  return {
    rows: loaded?.pages.flatMap(({ rows }) => rows) ?? [],
    total: loaded?.total ?? 0,
    hasMore: loaded !== undefined && loaded.next !== null,
    isLoading: isLoading && loaded === undefined,
    error,
    more,
    refresh,
  };
}

/** Calls `tick` every so often while the page is visible. */
export function useEvery(tick: () => void, everyMs: number) {
  const latest = useRef(tick);
  latest.current = tick;
  useEffect(() => {
    const timer = window.setInterval(() => {
      if (!document.hidden) latest.current();
    }, everyMs);
    return () => window.clearInterval(timer);
  }, [everyMs]);
}

/** The value, once it has stayed the same for a moment. */
export function useSettled<T>(value: T, afterMs = 250): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = window.setTimeout(() => setSettled(value), afterMs);
    return () => window.clearTimeout(timer);
  }, [value, afterMs]);
  return settled;
}
