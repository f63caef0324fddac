"""Order a draft for a ticket, say where it waits for a person, and print what was approved.

python triage.py "My parcel arrived broken. What now?"
"""

import os
import sys
import time

import httpx2


def main(ticket: str) -> None:
    """Order, wait, print."""
    url, key = os.environ["SHIKISHA_URL"], os.environ["SHIKISHA_KEY"]
    with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
        ordered = client.post("/runs", json={"prompt": ticket, "domain": "support", "background": True})
        ordered.raise_for_status()
        run = ordered.json()["id"]
        told = False
        while True:
            found = client.get(f"/runs/{run}").json()
            if found["status"] == "suspended" and not told:
                told = True
                print(f"a draft waits for you: {url}/ui/runs/{run}", flush=True)
            if found["status"] not in ("running", "suspended"):
                break
            time.sleep(0.5)
    print(f"{found['status']}: {found['answer']}")


if __name__ == "__main__":
    main(sys.argv[1])
