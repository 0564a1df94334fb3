import type { IconName } from "@/components/Icon";

/** The pages, in the order of the navigation; `key` follows `g`. */
export const PAGES = [
  { to: "/", label: "Overview", icon: "overview", key: "o" },
  { to: "/jobs", label: "Jobs", icon: "jobs", key: "j" },
  { to: "/workers", label: "Workers", icon: "workers", key: "w" },
  { to: "/queues", label: "Queues", icon: "queues", key: "q" },
  { to: "/schedules", label: "Schedules", icon: "schedules", key: "c" },
  { to: "/dead-letters", label: "Dead letters", icon: "deadLetters", key: "d" },
  { to: "/analytics", label: "Analytics", icon: "analytics", key: "a" },
  { to: "/submit", label: "Submit", icon: "submit", key: "s" },
] as const satisfies readonly { to: string; label: string; icon: IconName; key: string }[];
