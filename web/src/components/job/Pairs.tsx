/** Labels or metadata: names and values as they were given. */
export function Pairs({ pairs }: { pairs: Record<string, string> }) {
  return (
    <ul className="flex flex-wrap gap-1.5">
      {Object.entries(pairs).map(([name, value]) => (
        <li
          key={name}
          className="wrap-any rounded-sm border border-line bg-sunken px-1.5 font-mono text-2xs leading-5"
        >
          <span className="text-muted">{name}=</span>
          {value}
        </li>
      ))}
    </ul>
  );
}
