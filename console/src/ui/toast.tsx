// Short words about what was done, which go by themselves.

import { useSyncExternalStore } from "react";
import { CheckIcon } from "./icons";

interface Said {
  key: number;
  text: string;
}

let all: Said[] = [];
let keys = 0;
const watchers = new Set<() => void>();

function set(next: Said[]) {
  all = next;
  for (const watcher of watchers) watcher();
}

export function say(text: string) {
  const key = ++keys;
  set([...all.slice(-2), { key, text }]);
  window.setTimeout(() => set(all.filter((said) => said.key !== key)), 6_000);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => all,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map(({ key, text }) => (
        <div key={key} className="toast">
          <CheckIcon />
          {text}
        </div>
      ))}
    </div>
  );
}
