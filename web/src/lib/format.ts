/** Numbers, durations and times as people read them. Pure; `now` is an argument. */

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compactFormat = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** 1,234,567 */
export const count = (value: number): string => whole.format(value);

/** 999, 12.3K, 1.2M: where there is little room. */
export const compact = (value: number): string =>
  value < 10_000 ? count(value) : compactFormat.format(value);

/** Per second: 0, 0.2, 12.4, 1,240. */
export function rate(perSec: number): string {
  if (perSec === 0) return "0";
  if (perSec < 0.1) return perSec.toFixed(2);
  return perSec < 100 ? perSec.toFixed(1) : compact(Math.round(perSec));
}

/** 98.4 %; never 100 when something failed, never 0 when something did not. */
export function percent(share: number): string {
  if (share === 0 || share === 1) return `${share * 100} %`;
  const value = Math.min(99.99, Math.max(0.01, share * 100));
  return `${value > 99 || value < 1 ? value.toFixed(2) : value.toFixed(1)} %`;
}

/** 350 µs, 12 ms, 1.24 s, 3 m 20 s, 2 h 5 m, 4 d 3 h. */
export function duration(seconds: number): string {
  if (seconds === 0) return "0 s";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${short(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${short(seconds)} s`;
  const total = Math.round(seconds);
  if (total < 3600) return pair(total, 60, "m", 1, "s");
  if (total < 86_400) return pair(total, 3600, "h", 60, "m");
  return pair(total, 86_400, "d", 3600, "h");
}

function pair(total: number, big: number, bigUnit: string, small: number, smallUnit: string): string {
  const high = Math.floor(total / big);
  const low = Math.floor((total % big) / small);
  return low ? `${high} ${bigUnit} ${low} ${smallUnit}` : `${high} ${bigUnit}`;
}

/** Three digits are enough. */
function short(value: number): string {
  if (value >= 99.95) return value.toFixed(0);
  return String(Number(value >= 9.995 ? value.toFixed(1) : value.toFixed(2)));
}

/** just now, 12 s ago, 5 m ago, in 3 h. */
export function relative(at: number, now: number): string {
  const seconds = (now - at) / 1000;
  const distance = Math.abs(seconds);
  if (distance < 1) return "just now";
  const text = span(distance);
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

function span(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

const pad = (value: number, width = 2) => String(value).padStart(width, "0");

/** 2026-01-31 12:00:00.000 UTC+1: the visitor's clock, exact. */
export function exact(at: number): string {
  const date = new Date(at);
  const offset = -date.getTimezoneOffset();
  const hours = Math.trunc(offset / 60);
  const minutes = Math.abs(offset % 60);
  const zone =
    offset === 0 ? "UTC" : `UTC${hours < 0 ? "" : "+"}${hours}${minutes ? `:${pad(minutes)}` : ""}`;
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  return `${day} ${clock(at)}.${pad(date.getMilliseconds(), 3)} ${zone}`;
}

/** 12:00:00 */
export function clock(at: number): string {
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

/** 640 B, 12.4 kB, 3.1 MB */
export function bytes(value: number): string {
  if (value < 1000) return `${value} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let scaled = value / 1000;
  let unit = 0;
  while (scaled >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit++;
  }
  return `${short(scaled)} ${units[unit]}`;
}

/** The end of a UUIDv7 tells jobs apart; its beginning is the time. */
export const shortId = (id: string): string => (id.length > 12 ? `…${id.slice(-8)}` : id);

/** 1 job, 2 jobs */
export const plural = (value: number, one: string, many = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : many}`;
