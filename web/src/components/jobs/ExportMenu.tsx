import { Popover } from "@/components/Popover";

interface ExportMenuProps {
  /** What would be exported: "12 jobs". */
  what: string;
  busy: boolean;
  disabled: boolean;
  onExport: (format: "csv" | "json") => void;
}

export function ExportMenu({ what, busy, disabled, onExport }: ExportMenuProps) {
  return (
    <Popover
      label="Export"
      button={{ icon: "download", "aria-label": "Export", title: "Export", busy, disabled }}
    >
      {(close) => (
        <>
          <p className="px-2 pb-1 text-xs whitespace-nowrap text-muted">{what} as</p>
          {(["csv", "json"] as const).map((format) => (
            <button
              key={format}
              type="button"
              className="block h-7 w-full rounded-md px-2 text-left hover:bg-hover"
              onClick={() => {
                close();
                onExport(format);
              }}
            >
              {format.toUpperCase()}
            </button>
          ))}
        </>
      )}
    </Popover>
  );
}
