// How figures and times are written.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** 12,345 */
export const count = (value: number) => whole.format(value);

/** 12.3K */
export const compact = (value: number) => (Math.abs(value) < 10_000 ? whole.format(value) : short.format(value));

/** 1,234/s, or 0.3/s */
export function rate(value: number): string {
  if (value > 0 && value < 10) return `${value.toFixed(1)}/s`;
  return `${compact(value)}/s`;
}

export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let shown = value;
  while (shown >= 1024 && unit < units.length - 1) {
    shown /= 1024;
    unit += 1;
  }
  return `${unit === 0 || shown >= 100 ? Math.round(shown) : shown.toFixed(1)} ${units[unit]}`;
}

export function micros(value: number): string {
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} s`;
  if (value >= 1e4) return `${Math.round(value / 1e3)} ms`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(1)} ms`;
  return `${Math.round(value)} µs`;
}

/** 3 d 4 h, 5 h 12 min, 40 s */
export function duration(seconds: number): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [Math.floor(seconds) % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + (first >= 2 ? 1 : 2))
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const timeOfDay = (ms: number) => clock.format(ms);
export const dateTime = (ms: number) => day.format(ms);

/** `1 message`, `3 messages` */
export const plural = (value: number, one: string, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
