/** Line icons on a 16 px grid. */

const PATHS = {
  overview: "M2 9h3l2-6 3 10 2-4h2",
  jobs: "M5.5 4H14M5.5 8H14M5.5 12H14M2 4h.5M2 8h.5M2 12h.5",
  workers:
    "M4 4h8v8H4zM6.500 6.500h3v3h-3zM6 1.500V4M10 1.500V4M6 12v2.500M10 12v2.500M1.500 6H4M1.500 10H4M12 6h2.500M12 10h2.500",
  queues: "M2 4.500 8 2l6 2.500L8 7zM2 8l6 2.500L14 8M2 11.500 8 14l6-2.500",
  deadLetters: "M2 4h12v8.500H2zM2 4.500l6 4.500 6-4.500",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.500V8l2.500 1.500",
  analytics: "M2 14h12M4 11.500V8M8 11.500V3M12 11.500V6",
  submit: "M8 3v10M3 8h10",
  search: "M7 2.500a4.500 4.500 0 1 0 0 9 4.500 4.500 0 0 0 0-9zM10.500 10.500 14 14",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.500 6.500 12 13 4.500",
  copy: "M5.500 5.500h8v8h-8zM2.500 10.500v-8h8",
  retry: "M13 8a5 5 0 1 1-1.600-3.700M13 2v3h-3",
  cancel: "M8 2.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 0 0 0-11zM4.200 4.200l7.600 7.600",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  play: "M5 3v10l8-5z",
  columns: "M2.500 3h11v10h-11zM6.200 3v10M9.800 3v10",
  download: "M8 2.500v7.500M4.500 7 8 10.500 11.500 7M3 13.500h10",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z",
  system: "M2 3h12v8H2zM6 14h4M8 11v3",
  keyboard: "M1.500 4h13v8h-13zM4 6.500h.5M6.500 6.500H7M9 6.500h.5M11.500 6.500h.5M4.500 9.500h7",
  chevron: "M6 4l4 4-4 4",
  down: "M4 6l4 4 4-4",
  more: "M3.500 8h.1M8 8h.1M12.500 8h.1",
  warning: "M8 2.500 14.500 13.500h-13zM8 6.500v3.500M8 11.800v.2",
  external: "M6 3H3v10h10v-3M9 3h4v4M13 3 7.500 8.500",
  drain: "M3 3h10l-3.500 5v5l-3-1.500V8z",
  edit: "M3 13l.6-2.800L10.800 3 13 5.200 5.800 12.400zM9.300 4.500l2.200 2.200",
  trash: "M2.500 4.500h11M6 4.500V2.500h4v2M4 4.500l.6 9h6.800l.6-9M6.700 7v4M9.300 7v4",
  logout: "M6 3H3v10h3M7 8h6.500M11 5.500 13.500 8 11 10.500",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      aria-hidden="true"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      className="shrink-0"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
