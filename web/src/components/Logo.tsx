/** The fire. */
export function Logo({ size = 20 }: { size?: number }) {
  return (
    <svg aria-hidden="true" width={size} height={size} viewBox="0 0 24 24" className="shrink-0">
      <path
        className="fill-accent"
        d="M12.600 1.500c.7 4-1.200 6.200-3.300 8.600C7 12.800 4.500 15.600 4.500 19.700c0 .3 0 .6.100.9C6 22 8.700 23 12 23c4.500 0 8-3 8-7.500 0-3.300-1.700-5.500-2.900-7.200-.2 1.600-.9 2.800-2.100 3.600.5-3.600.2-7.400-2.400-10.400Z"
      />
      <path
        className="fill-panel"
        d="M12 13c.4 2-3 3.200-3 6.100 0 1.800 1.400 3 3.100 3s3.100-1.200 3.100-3c0-2.600-2-3.800-3.200-6.100Z"
        opacity=".85"
      />
    </svg>
  );
}
