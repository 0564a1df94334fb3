import { Page } from "@/app/Page";
import { EmptyState } from "@/components/EmptyState";

export function SubmitPage() {
  return (
    <Page>
      <EmptyState icon="submit" title="Submit" />
    </Page>
  );
}
