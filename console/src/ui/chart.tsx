// A chart of values over time, drawn as SVG: no more than some hundred points, and so cheap.

import { type KeyboardEvent, type PointerEvent, useEffect, useRef, useState } from "react";
import { timeOfDay } from "../format";

export interface Series {
  label: string;
  /** Number of its colour, 1 to 5. */
  colour: number;
  /** Shaded down to the axis. */
  area?: boolean;
  values: (number | null)[];
}

interface Props {
  title: string;
  /** Milliseconds, rising. */
  times: number[];
  /** What the axis shows: from here to the last time. */
  from: number;
  until: number;
  series: Series[];
  format: (value: number) => string;
  /** The axis reaches at least this far. */
  atLeast?: number;
  height?: number;
  /** The axis has steps of powers of two, as bytes are written. */
  isBinary?: boolean;
}

const PAD = { top: 8, right: 4, bottom: 20, left: 4 };

export function useWidth<E extends Element>(): [React.RefObject<E | null>, number] {
  const element = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const target = element.current;
    if (target === null) return undefined;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    observer.observe(target);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}

/** Steps of 1, 2 or 5 by powers of ten, or of powers of two: at most four. */
function ticks(max: number, isBinary: boolean): number[] {
  const rough = max / 3;
  if (isBinary) {
    const step = 2 ** Math.ceil(Math.log2(rough));
    return Array.from({ length: Math.ceil(max / step) + 1 }, (_, index) => index * step);
  }
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) ?? rough;
  const count = Math.ceil(max / step - 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => index * step);
}

function line(times: number[], values: (number | null)[], x: (time: number) => number, y: (value: number) => number) {
  let path = "";
  let isOpen = false;
  values.forEach((value, index) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    path += `${isOpen ? "L" : "M"}${x(times[index] ?? 0).toFixed(1)} ${y(value).toFixed(1)}`;
    isOpen = true;
  });
  return path;
}

function area(times: number[], values: (number | null)[], x: (time: number) => number, y: (value: number) => number) {
  let path = "";
  let run: string[] = [];
  let first = 0;
  const close = (last: number) => {
    if (run.length > 1) path += `M${first.toFixed(1)} ${y(0)}L${run.join("L")}L${last.toFixed(1)} ${y(0)}Z`;
    run = [];
  };
  let last = 0;
  values.forEach((value, index) => {
    if (value === null) {
      close(last);
      return;
    }
    last = x(times[index] ?? 0);
    if (run.length === 0) first = last;
    run.push(`${last.toFixed(1)} ${y(value).toFixed(1)}`);
  });
  close(last);
  return path;
}

export function Chart({ title, times, from, until, series, format, atLeast = 1, height = 200, isBinary = false }: Props) {
  const [element, width] = useWidth<HTMLDivElement>();
  const [at, setAt] = useState<number | null>(null);
  const max = Math.max(atLeast, ...series.flatMap(({ values }) => values.map((value) => value ?? 0)));
  const steps = ticks(max, isBinary);
  const top = steps.at(-1) ?? 1;
  const x = (time: number) => PAD.left + ((time - from) / Math.max(1, until - from)) * (width - PAD.left - PAD.right);
  const y = (value: number) => PAD.top + (1 - value / top) * (height - PAD.top - PAD.bottom);

  const nearest = (clientX: number, box: DOMRect) => {
    const time = from + ((clientX - box.left - PAD.left) / (width - PAD.left - PAD.right)) * (until - from);
    let best: number | null = null;
    times.forEach((candidate, index) => {
      if (best === null || Math.abs(candidate - time) < Math.abs((times[best] ?? 0) - time)) best = index;
    });
    return best;
  };
  const move = (event: PointerEvent) => setAt(nearest(event.clientX, event.currentTarget.getBoundingClientRect()));
  const press = (event: KeyboardEvent) => {
    const step = event.key === "ArrowLeft" ? -1 : event.key === "ArrowRight" ? 1 : 0;
    if (step === 0 || times.length === 0) return;
    event.preventDefault();
    setAt((at) => Math.min(times.length - 1, Math.max(0, (at ?? times.length) + step)));
  };

  const index = at !== null && at < times.length ? at : null;
  const shownAt = index ?? times.length - 1;
  const value = (of: Series) => of.values[shownAt];
  const said = series.map((of) => `${of.label} ${format(value(of) ?? 0)}`).join(", ");
  const marks = timeMarks(from, until, width);
  return (
    <figure className="chart card">
      <figcaption className="chart-head">
        <h2>{title}</h2>
        <ul className="legend">
          {series.map((of) => (
            <li key={of.label}>
              <span className={`swatch c${of.colour}`} aria-hidden="true" />
              <span className="legend-label">{of.label}</span>
              <span className="legend-value">{value(of) == null ? "–" : format(value(of) ?? 0)}</span>
            </li>
          ))}
          <li className="legend-time">{index === null ? "now" : timeOfDay(times[index] ?? 0)}</li>
        </ul>
      </figcaption>
      <div
        ref={element}
        className="chart-plot"
        style={{ height }}
        role="img"
        aria-label={`${title}: ${said}`}
        tabIndex={0}
        onPointerMove={move}
        onPointerLeave={() => setAt(null)}
        onKeyDown={press}
        onBlur={() => setAt(null)}
      >
        {width > 0 && (
          <svg width={width} height={height} aria-hidden="true">
            {steps.map((step) => (
              <g key={step}>
                <line className={step === 0 ? "axis" : "grid"} x1={0} x2={width} y1={y(step)} y2={y(step)} />
                {step > 0 && (
                  <text className="tick" x={2} y={y(step) + 12}>
                    {format(step)}
                  </text>
                )}
              </g>
            ))}
            {marks.map((mark) => (
              <text key={mark} className="tick" x={x(mark)} y={height - 5} textAnchor="middle">
                {timeOfDay(mark).replace(/:00(?=\D*$)/, "")}
              </text>
            ))}
            {series.map((of) => (
              <g key={of.label} className={`series c${of.colour}`}>
                {of.area && <path className="area" d={area(times, of.values, x, y)} />}
                <path className="line" d={line(times, of.values, x, y)} />
              </g>
            ))}
            {index !== null && (
              <g>
                <line className="cursor" x1={x(times[index] ?? 0)} x2={x(times[index] ?? 0)} y1={PAD.top} y2={y(0)} />
                {series.map((of) => {
                  const here = of.values[index];
                  return here == null ? null : (
                    <circle key={of.label} className={`dot c${of.colour}`} cx={x(times[index] ?? 0)} cy={y(here)} r={3.5} />
                  );
                })}
              </g>
            )}
          </svg>
        )}
      </div>
    </figure>
  );
}

/** Round times, with some distance between them. */
function timeMarks(from: number, until: number, width: number): number[] {
  const steps = [10, 30, 60, 120, 300, 600, 900, 1800].map((seconds) => seconds * 1000);
  const wanted = Math.max(2, Math.floor(width / 110));
  const step = steps.find((step) => (until - from) / step <= wanted) ?? 3_600_000;
  const marks: number[] = [];
  const margin = ((until - from) / Math.max(1, width)) * 30;
  for (let mark = Math.ceil((from + margin) / step) * step; mark <= until - margin; mark += step) marks.push(mark);
  return marks;
}

/** A small line without axes. */
export function Spark({ values, colour }: { values: (number | null)[]; colour: number }) {
  const [width, height] = [100, 28];
  const max = Math.max(1e-9, ...values.map((value) => value ?? 0));
  const x = (index: number) => (index / Math.max(1, values.length - 1)) * width;
  const y = (value: number) => height - 2 - (value / max) * (height - 4);
  const indexes = values.map((_, index) => index);
  return (
    <svg className={`spark series c${colour}`} viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <path className="area" d={area(indexes, values, x, y)} />
      <path className="line" d={line(indexes, values, x, y)} />
    </svg>
  );
}
