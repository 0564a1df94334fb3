import type { ReactNode } from "react";

export interface Fact {
  name: string;
  value: ReactNode;
}

/** Small named values, as many in a line as there is room for. */
export function Facts({ facts }: { facts: Fact[] }) {
  return (
    <dl className="grid grid-cols-[repeat(auto-fill,minmax(104px,1fr))] gap-x-4 gap-y-3">
      {facts.map(({ name, value }) => (
        <div key={name} className="min-w-0">
          <dt className="text-xs text-muted">{name}</dt>
          <dd className="clip">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
