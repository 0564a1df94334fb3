import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function DeadLettersPage() {
  return (
    <Page>
      <EmptyState icon="deadLetters" title="Dead letters" />
    </Page>
  );
}
