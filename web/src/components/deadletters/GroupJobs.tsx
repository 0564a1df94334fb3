import type { ReactNode } from "react";
import type { DeadLetter } from "@/api/model";
import { Time } from "@/components/Time";
import { shortId } from "@/lib/format";

interface GroupJobsProps {
  rows: DeadLetter[];
  link: (row: DeadLetter, children: ReactNode) => ReactNode;
}

/** The jobs of a group, the latest first. */
export function GroupJobs({ rows, link }: GroupJobsProps) {
  return (
    <table className="w-full table-fixed text-left">
      <thead>
        <tr className="text-xs text-muted">
          <th scope="col" className="h-8 w-44 pl-10 font-medium max-sm:w-auto">
            Job
          </th>
          <th scope="col" className="px-2 font-medium max-sm:hidden">
            What it said
          </th>
          <th scope="col" className="w-32 px-2 font-medium max-sm:hidden">
            Queue
          </th>
          <th scope="col" className="w-28 pr-4 text-right font-medium">
            Failed
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.id} className="border-t border-line hover:bg-hover">
            <td className="clip h-8 pl-10">
              {link(row, <span className="font-mono text-xs">{shortId(row.id)}</span>)}
            </td>
            <td className="clip px-2 max-sm:hidden" title={row.message.slice(0, 500)}>
              {row.name && <span className="mr-2 text-muted">{row.name}</span>}
              {row.message.slice(0, 500)}
            </td>
            <td className="clip px-2 max-sm:hidden">{row.queue}</td>
            <td className="pr-4 text-right text-muted">
              <Time at={row.completedAt} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
