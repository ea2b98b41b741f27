// What is shown where something is missing or went wrong.

import type { ReactNode } from "react";
import type { ApiError } from "../api";

export function Failure({ error, onRetry }: { error: ApiError; onRetry?: () => void }) {
  return (
    <div className="failure" role="alert">
      <p>
        <strong>{error.status === 0 ? "No connection to the broker" : "The broker refused this"}</strong>
        <span>{error.message}</span>
      </p>
      {onRetry !== undefined && (
        <button type="button" className="button" onClick={onRetry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Loading() {
  return (
    <div className="loading" role="status">
      Loading…
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <>
      <p className="empty-title">{title}</p>
      {children !== undefined && <p>{children}</p>}
    </>
  );
}

export function Badge({ tone, children }: { tone?: "good" | "warning" | "bad" | "info"; children: ReactNode }) {
  return <span className={`badge${tone === undefined ? "" : ` is-${tone}`}`}>{children}</span>;
}
