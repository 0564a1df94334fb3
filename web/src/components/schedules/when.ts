/** When a schedule ticks, in words; null where the expression itself says it better. Pure. */

import type { Schedule } from "@/api/schedules";
import { duration, exact } from "@/lib/format";

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const SHORT = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const NAMED: Record<string, string> = {
  "@hourly": "0 * * * *",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@weekly": "0 0 * * 0",
  "@monthly": "0 0 1 * *",
};

export function inWords({ cron, everySec }: Pick<Schedule, "cron" | "everySec">): string | null {
  if (everySec !== null) return `every ${duration(everySec)}`;
  return cron === null ? null : cronInWords(cron);
}

export function cronInWords(cron: string): string | null {
  const text = cron.trim().toLowerCase();
  const [minute, hour, day, month, weekday, more] = (NAMED[text] ?? text).split(/\s+/);
  if (minute === undefined || hour === undefined || day === undefined) return null;
  if (weekday === undefined || more !== undefined || month !== "*") return null;
  const anyDay = day === "*" && weekday === "*";
  if (hour === "*") return anyDay ? withinHours(minute) : null;
  const time = timeOf(minute, hour);
  if (time === null) return null;
  if (anyDay) return `every day at ${time}`;
  if (day === "*") {
    const days = daysOf(weekday);
    return days && `${days} at ${time}`;
  }
  const date = numberOf(day, 1, 31);
  return weekday === "*" && date !== null ? `on day ${date} of every month at ${time}` : null;
}

function withinHours(minute: string): string | null {
  if (minute === "*") return "every minute";
  const step = /^\*\/(\d+)$/.exec(minute);
  // Steps that do not divide the hour are uneven at its end, which "every 7 minutes" would not say.
  if (step) {
    const minutes = Number(step[1]);
    if (minutes === 1) return "every minute";
    return minutes > 0 && minutes <= 30 && 60 % minutes === 0 ? `every ${minutes} minutes` : null;
  }
  const at = numberOf(minute, 0, 59);
  if (at === null) return null;
  return at === 0 ? "every hour" : `every hour at minute ${at}`;
}

function timeOf(minute: string, hour: string): string | null {
  const m = numberOf(minute, 0, 59);
  const h = numberOf(hour, 0, 23);
  if (m === null || h === null) return null;
  return `${String(h).padStart(2, "0")}:${String(m).padStart(2, "0")}`;
}

/** Monday to Friday; Saturday and Sunday; Monday, Wednesday and Friday. */
function daysOf(text: string): string | null {
  const range = /^(\w+)-(\w+)$/.exec(text);
  if (range) {
    const first = dayOf(range[1] ?? "");
    const last = dayOf(range[2] ?? "");
    return first !== null && last !== null ? `${DAYS[first]} to ${DAYS[last]}` : null;
  }
  const days = text.split(",").map(dayOf);
  if (days.includes(null)) return null;
  const names = days.map((day) => DAYS[day ?? 0] ?? "");
  const last = names.pop();
  return names.length ? `${names.join(", ")} and ${last}` : `every ${last}`;
}

function dayOf(text: string): number | null {
  const named = SHORT.indexOf(text);
  if (named >= 0) return named;
  const value = numberOf(text, 0, 7);
  return value === null ? null : value % 7;
}

function numberOf(text: string, low: number, high: number): number | null {
  if (!/^\d{1,2}$/.test(text)) return null;
  const value = Number(text);
  return value >= low && value <= high ? value : null;
}

/** "Mon, 19 Jan 2026, 09:00:00" by the clocks of that zone; by the visitor's where the browser does not know it. */
export function inZone(at: number, timezone: string): string {
  const style = { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" } as const;
  try {
    const date = new Date(at);
    const weekday = date.toLocaleDateString("en-GB", { weekday: "short", timeZone: timezone });
    return `${weekday}, ${date.toLocaleString("en-GB", { ...style, timeZone: timezone })}`;
  } catch {
    return exact(at);
  }
}
