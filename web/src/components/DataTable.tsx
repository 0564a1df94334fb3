import {
  type ColumnDef,
  flexRender,
  getCoreRowModel,
  getSortedRowModel,
  type SortingState,
  useReactTable,
} from "@tanstack/react-table";
import { useState } from "react";
import { cx } from "@/lib/cx";

declare module "@tanstack/react-table" {
  interface ColumnMeta<TData, TValue> {
    /** Numbers stand right. */
    numeric?: boolean;
    /** Leave it out on narrow screens. */
    wide?: boolean;
    _?: [TData, TValue];
  }
}

interface DataTableProps<T> {
  label: string;
  rows: T[];
  // biome-ignore lint/suspicious/noExplicitAny: columns of one table hold values of many types.
  columns: ColumnDef<T, any>[];
  rowId: (row: T) => string;
  initialSort?: SortingState;
}

/** A table of some dozens of rows, sorted by its heads. The table of all jobs is another one. */
export function DataTable<T>({ label, rows, columns, rowId, initialSort = [] }: DataTableProps<T>) {
  const [sorting, setSorting] = useState<SortingState>(initialSort);
  const table = useReactTable({
    data: rows,
    columns,
    state: { sorting },
    onSortingChange: setSorting,
    getRowId: rowId,
    getCoreRowModel: getCoreRowModel(),
    getSortedRowModel: getSortedRowModel(),
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: whoever has no mouse scrolls it with the keyboard.
    <div className="overflow-x-auto" tabIndex={0} role="region" aria-label={label}>
      <table className="w-full border-collapse text-left">
        <thead>
          {table.getHeaderGroups().map((group) => (
            <tr key={group.id} className="border-b border-line text-xs text-muted">
              {group.headers.map((header) => {
                const { meta } = header.column.columnDef;
                const sorted = header.column.getIsSorted();
                const text = flexRender(header.column.columnDef.header, header.getContext());
                return (
                  <th
                    key={header.id}
                    scope="col"
                    aria-sort={sorted ? (sorted === "asc" ? "ascending" : "descending") : undefined}
                    className={cx(
                      "h-8 px-4 font-medium whitespace-nowrap",
                      meta?.numeric && "text-right",
                      meta?.wide && "max-md:hidden",
                    )}
                  >
                    {header.column.getCanSort() ? (
                      <button
                        type="button"
                        onClick={header.column.getToggleSortingHandler()}
                        className="hover:text-text"
                      >
                        {text}
                        <span aria-hidden="true" className="inline-block w-3">
                          {sorted === "asc" ? "↑" : sorted === "desc" ? "↓" : ""}
                        </span>
                      </button>
                    ) : (
                      text
                    )}
                  </th>
                );
              })}
            </tr>
          ))}
        </thead>
        <tbody>
          {table.getRowModel().rows.map((row) => (
            <tr key={row.id} className="border-b border-line last:border-b-0 hover:bg-hover">
              {row.getVisibleCells().map((cell) => {
                const { meta } = cell.column.columnDef;
                return (
                  <td
                    key={cell.id}
                    className={cx(
                      "h-9 max-w-80 px-4 py-1",
                      meta?.numeric && "text-right",
                      meta?.wide && "max-md:hidden",
                    )}
                  >
                    {flexRender(cell.column.columnDef.cell, cell.getContext())}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
