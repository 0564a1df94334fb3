import { useEffect, useState } from "react";

/** A value once it has stayed the same for a while: what is typed, when the typing pauses. `key` tells values apart. */
export function useDebounced<T>(value: T, ms: number, key: string = JSON.stringify(value)): T {
  const [settled, setSettled] = useState(value);
  // biome-ignore lint/correctness/useExhaustiveDependencies: `key` says when the value is another one.
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [key, ms]);
  return settled;
}
