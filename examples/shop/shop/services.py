"""The bank and the post office, as the shop sees them. These print; yours would send HTTP and SMTP."""


class BankUnavailable(Exception):
    """The bank did not answer. Whether it charged the card is unknown."""


class CardDeclined(Exception):
    """The bank said no."""


class Bank:
    """A payment service. Like every real one it charges once for one `key`, however often it is asked."""

    def charge(self, key: str, cents: int) -> str:
        """Charge a card and return the number of the payment. Raises `BankUnavailable` and `CardDeclined`."""
        print(f"bank: {key}: {cents / 100:.2f}")
        return f"payment-{key}"


class Mail:
    """Sends mail."""

    def send(self, to: str, subject: str) -> None:
        print(f"mail to {to}: {subject}")


bank = Bank()
mail = Mail()
