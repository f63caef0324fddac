from shikisha import Shikisha, worker


@worker(description="Looks up a customer's open invoices.", reads=True)
def invoices(customer: str) -> list[dict[str, object]]:
    return [{"number": 17, "customer": customer, "dollars": 42.5}]


print(Shikisha(workers=["openai:gpt-5-mini", invoices]).run("What does ACME owe us?"))
