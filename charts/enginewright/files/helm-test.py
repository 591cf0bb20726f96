"""helm test: ADDRESS of the metrics. Exits with what is wrong."""
import re
import sys
import time
import urllib.request

address = sys.argv[1]
last = "it was not asked"
# The Service answers for one replica at a time; of several one leads.
for _ in range(45):
    try:
        page = urllib.request.urlopen(address, timeout=5).read().decode()  # noqa: S310  (the chart wrote it)
    except OSError as error:
        last = f"{address} does not answer: {error}"
    else:
        values = dict(re.findall(r"^(enginewright_[a-z_]+) (\S+)$", page, re.MULTILINE))
        missing = float(values.get("enginewright_crd_missing_fields", 0))
        if missing:
            sys.exit(f"the CRD lacks {missing:.0f} fields that this operator knows: see docs/install.md")
        if float(values.get("enginewright_leader", 0)):
            print("the operator answers, leads, and knows the definition of its cluster")
            sys.exit(0)
        last = "the operator answers, and no replica leads: kubectl logs says why"
    time.sleep(2)
sys.exit(last)
