import { createColumnHelper } from "@tanstack/react-table";
import { type ReactNode, useMemo } from "react";
import type { BreakdownRow } from "@/api/model";
import { DataTable } from "@/components/DataTable";
import { Duration } from "@/components/Duration";
import { compact, percent, rate } from "@/lib/format";
import { failureShare } from "./breakdown";

interface BreakdownTableProps {
  by: "type" | "queue";
  rows: BreakdownRow[];
  link: (key: string) => ReactNode;
}

const column = createColumnHelper<BreakdownRow>();
const number = { numeric: true } as const;
const wide = { numeric: true, wide: true } as const;

/** One line per type or queue, sorted by its heads. */
export function BreakdownTable({ by, rows, link }: BreakdownTableProps) {
  const columns = useMemo(() => {
    const most = Math.max(0, ...rows.map((row) => row.completed + row.failed));
    return columnsOf(by, most, link);
  }, [by, rows, link]);
  return (
    <DataTable
      label={`By ${by}`}
      rows={rows}
      columns={columns}
      rowId={(row) => row.key}
      initialSort={[{ id: "perSec", desc: true }]}
    />
  );
}

function columnsOf(by: string, most: number, link: (key: string) => ReactNode) {
  const time = (id: "waitP50" | "waitP95" | "runP50" | "runP95", header: string, isWide = false) =>
    column.accessor((row) => row[id] ?? undefined, {
      id,
      header,
      meta: isWide ? wide : number,
      sortUndefined: "last",
      cell: (cell) => <Duration seconds={cell.getValue()} />,
    });
  return [
    column.accessor("key", {
      header: by === "type" ? "Type" : "Queue",
      cell: (cell) => (
        <div className="flex min-w-24 flex-col gap-1">
          <span className="clip">{link(cell.getValue())}</span>
          <Share row={cell.row.original} most={most} />
        </div>
      ),
    }),
    column.accessor("perSec", { header: "Per second", meta: number, cell: (cell) => rate(cell.getValue()) }),
    column.accessor("completed", {
      header: "Completed",
      meta: wide,
      cell: (cell) => compact(cell.getValue()),
    }),
    column.accessor("failed", { header: "Failed", meta: number, cell: (cell) => compact(cell.getValue()) }),
    column.accessor((row) => failureShare(row) ?? undefined, {
      id: "share",
      header: "Failing",
      meta: wide,
      sortUndefined: "last",
      cell: (cell) => {
        const share = cell.getValue();
        if (share === undefined) return <span className="text-faint">–</span>;
        return <span className={share > 0.05 ? "text-failed" : undefined}>{percent(share)}</span>;
      },
    }),
    column.accessor("retried", { header: "Retried", meta: wide, cell: (cell) => compact(cell.getValue()) }),
    time("waitP50", "Wait p50", true),
    time("waitP95", "Wait p95"),
    time("runP50", "Run p50", true),
    time("runP95", "Run p95"),
  ];
}

/** How much of all it is, and how much of it failed. */
function Share({ row, most }: { row: BreakdownRow; most: number }) {
  const width = (value: number) => `${(value / Math.max(1, most)) * 100}%`;
  return (
    <span aria-hidden="true" className="flex h-1 w-full gap-px overflow-hidden rounded-full">
      <span className="bg-completed" style={{ width: width(row.completed) }} />
      <span className="bg-failed" style={{ width: width(row.failed) }} />
    </span>
  );
}
