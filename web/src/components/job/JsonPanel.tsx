import type { ReactNode } from "react";
import { formatExact } from "@/api/json";
import { CopyButton } from "@/components/CopyButton";
import { Panel } from "@/components/Panel";
import { Json } from "./Json";

interface JsonPanelProps {
  title: string;
  value: unknown;
  /** Instead of `null`, when there is nothing to show. */
  none?: ReactNode;
}

export function JsonPanel({ title, value, none }: JsonPanelProps) {
  const empty = value === null || value === undefined;
  return (
    <Panel
      title={title}
      actions={
        empty ? undefined : (
          <CopyButton text={formatExact(value, 2)} label={`Copy the ${title.toLowerCase()}`} />
        )
      }
    >
      {empty && none ? (
        <p className="text-muted">{none}</p>
      ) : (
        <div className="-ml-1 max-h-[420px] overflow-y-auto">
          <Json value={value ?? null} />
        </div>
      )}
    </Panel>
  );
}
