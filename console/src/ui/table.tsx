// A table of any length: only the rows in sight are in the document, and the next page is loaded as its end comes near.

import { type KeyboardEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { type Pages, useEvery } from "../live";
import { count } from "../format";
import { Failure } from "./state";

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T, index: number) => ReactNode;
  /** Figures stand to the right. */
  isNumber?: boolean;
  /** The API's name of the order by this column. */
  sort?: string;
  /** CSS width in the grid. */
  width: string;
  /** Left out where there is less room than this: 1 narrow, 2 middle, 3 wide. */
  room?: 1 | 2 | 3;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  pages: Pages<T>;
  rowKey: (row: T) => string;
  /** The order now, as the API has it: `-messages`. */
  sort?: string;
  onSort?: (sort: string) => void;
  /** What is said instead of an empty table. */
  empty: ReactNode;
  refreshMs?: number;
  /** The address of a row's page, for a click anywhere on it. */
  onOpen?: (row: T) => void;
  isSelected?: (row: T) => boolean;
}

const ROW = 44;
/** Rows beyond the visible ones. */
const SPARE = 8;

export function Table<T>({ label, columns, pages, rowKey, sort, onSort, empty, refreshMs = 3_000, onOpen, isSelected }: Props<T>) {
  const body = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const { rows, hasMore, more } = pages;
  useEvery(() => pages.refresh(range[0], range[1]), refreshMs);

  useEffect(() => {
    const measure = () => {
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / ROW) - SPARE);
      const last = Math.ceil((window.innerHeight - top) / ROW) + SPARE;
      setRange((before) => (before[0] === first && before[1] === last ? before : [first, last]));
    };
    measure();
    window.addEventListener("scroll", measure, { passive: true });
    window.addEventListener("resize", measure);
    return () => {
      window.removeEventListener("scroll", measure);
      window.removeEventListener("resize", measure);
    };
  });
  // With each drawing: a page is not asked for while others are being refreshed.
  useEffect(() => {
    if (hasMore && range[1] >= rows.length) more();
  });

  const walk = (event: KeyboardEvent) => {
    const steps: { [key: string]: number } = { ArrowDown: 1, ArrowUp: -1 };
    const step = steps[event.key];
    const row = (event.target as Element).closest<HTMLElement>("[aria-rowindex]");
    if (step === undefined || row === null || (event.target as Element).matches("input, textarea, select")) return;
    const next = body.current?.querySelector<HTMLElement>(`[aria-rowindex="${Number(row.ariaRowIndex) + step}"]`);
    const focusable = next?.querySelector<HTMLElement>("a, button, input");
    if (focusable == null) return;
    event.preventDefault();
    focusable.focus();
    next?.scrollIntoView({ block: "nearest" });
  };

  const shown = rows.slice(range[0], range[1]);
  const isEmpty = rows.length === 0 && !pages.isLoading && pages.error === undefined;
  const grid = { "--columns": template(columns, 3), "--columns-2": template(columns, 2), "--columns-1": template(columns, 1) } as React.CSSProperties;
  return (
    <div className="table card" role="table" aria-label={label} aria-rowcount={hasMore ? -1 : rows.length + 1} style={grid}>
      <div role="rowgroup" className="table-head">
        <div role="row" className="row" aria-rowindex={1}>
          {columns.map((column) => {
            const name = column.sort;
            const order = name === undefined || sort === undefined ? undefined : sort === name ? "ascending" : sort === `-${name}` ? "descending" : undefined;
            return (
              <div key={column.id} role="columnheader" className={cellClass(column)} aria-sort={order}>
                {name !== undefined && onSort !== undefined ? (
                  <button type="button" className="sort" onClick={() => onSort(nextSort(column, sort))}>
                    {column.title}
                    <span className="sort-mark" aria-hidden="true">
                      {order === "ascending" ? "▲" : order === "descending" ? "▼" : ""}
                    </span>
                  </button>
                ) : (
                  column.title
                )}
              </div>
            );
          })}
        </div>
      </div>
      {pages.error !== undefined && <Failure error={pages.error} onRetry={() => pages.refresh()} />}
      {isEmpty && <div className="empty">{empty}</div>}
      {pages.isLoading && (
        <div className="loading" role="status">
          Loading…
        </div>
      )}
      <div ref={body} role="rowgroup" className="table-body" style={{ height: rows.length * ROW }} onKeyDown={walk}>
        {shown.map((row, offset) => {
          const index = range[0] + offset;
          return (
            <div
              key={rowKey(row)}
              role="row"
              aria-rowindex={index + 2}
              className={`row${onOpen === undefined ? "" : " is-open"}${isSelected?.(row) ? " is-selected" : ""}`}
              style={{ transform: `translateY(${index * ROW}px)` }}
              onClick={(event) => {
                if (onOpen === undefined || (event.target as Element).closest("a, button, input, label") !== null) return;
                onOpen(row);
              }}
            >
              {columns.map((column) => (
                <div key={column.id} role="cell" className={cellClass(column)} data-title={column.title}>
                  {column.cell(row, index)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
      {rows.length > 0 && (
        <div className="table-foot">
          {pages.total > rows.length ? `${count(rows.length)} of ${count(pages.total)} rows loaded` : `${count(rows.length)} rows`}
        </div>
      )}
    </div>
  );
}

function cellClass<T>({ isNumber, room }: Column<T>) {
  return `cell${isNumber ? " number" : ""}${room === undefined ? "" : ` room-${room}`}`;
}

function template<T>(columns: Column<T>[], room: number) {
  return columns
    .filter((column) => (column.room ?? 0) <= room)
    .map(({ width }) => width)
    .join(" ");
}

function nextSort<T>(column: Column<T>, sort: string | undefined) {
  const name = column.sort ?? "";
  if (!column.isNumber) return name;
  return sort === `-${name}` ? name : `-${name}`;
}
