import { Icon } from "@/components/Icon";
import { cx } from "@/lib/cx";
import { setTheme, type Theme, useTheme } from "@/lib/theme";

const CHOICES = [
  { theme: "light", icon: "sun", label: "Light" },
  { theme: "system", icon: "system", label: "As the system" },
  { theme: "dark", icon: "moon", label: "Dark" },
] as const satisfies readonly { theme: Theme; icon: string; label: string }[];

export function ThemeSwitch() {
  const current = useTheme();
  return (
    <fieldset className="flex rounded-md bg-sunken p-0.5 md:flex-col lg:flex-row">
      <legend className="sr-only">Theme</legend>
      {CHOICES.map(({ theme, icon, label }) => (
        <button
          key={theme}
          type="button"
          aria-pressed={current === theme}
          aria-label={label}
          title={label}
          onClick={() => setTheme(theme)}
          className={cx(
            "grid h-6 flex-1 place-items-center rounded-sm",
            current === theme ? "bg-raised text-text shadow-low" : "text-muted hover:text-text",
          )}
        >
          <Icon name={icon} size={14} />
        </button>
      ))}
    </fieldset>
  );
}
