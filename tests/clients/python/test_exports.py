"""`tidemark usage` for other systems, read by Python's own parsers and held against what the specifications say."""

import csv
import io
import json
import os
import re
import subprocess
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

PATIENCE_SECONDS = 60
# The columns of FOCUS 1.2 in the order of their names, from its chapter 3 (Columns): the type of their values, and whether they may
# be null.
FOCUS = """
AvailabilityZone String null
BilledCost Decimal
BillingAccountId String
BillingAccountName String null
BillingAccountType String null
BillingCurrency String
BillingPeriodEnd Date
BillingPeriodStart Date
CapacityReservationId String null
CapacityReservationStatus String null
ChargeCategory String
ChargeClass String null
ChargeDescription String null
ChargeFrequency String
ChargePeriodEnd Date
ChargePeriodStart Date
CommitmentDiscountCategory String null
CommitmentDiscountId String null
CommitmentDiscountName String null
CommitmentDiscountQuantity Decimal null
CommitmentDiscountStatus String null
CommitmentDiscountType String null
CommitmentDiscountUnit String null
ConsumedQuantity Decimal null
ConsumedUnit String null
ContractedCost Decimal
ContractedUnitPrice Decimal null
EffectiveCost Decimal
InvoiceId String null
InvoiceIssuerName String
ListCost Decimal
ListUnitPrice Decimal null
PricingCategory String null
PricingCurrency String null
PricingCurrencyContractedUnitPrice Decimal null
PricingCurrencyEffectiveCost Decimal null
PricingCurrencyListUnitPrice Decimal null
PricingQuantity Decimal null
PricingUnit String null
ProviderName String
PublisherName String
RegionId String null
RegionName String null
ResourceId String null
ResourceName String null
ResourceType String null
ServiceCategory String
ServiceName String
ServiceSubcategory String
SkuId String null
SkuMeter String null
SkuPriceDetails Json null
SkuPriceId String null
SubAccountId String null
SubAccountName String null
SubAccountType String null
Tags Json null
"""
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"Databases"},
    "ServiceSubcategory": {"Caching"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with prices and short rows; the name of its data folder."""
    data = tmp_path_factory.mktemp("exports") / "data"
    prices = Path(__file__).parents[3] / "prices.example.toml"
    command = [os.environ["TEST_TIDEMARK"], "serve", "--data", str(data), "--prices", str(prices), "--ledger-period", "1s"]
    command += ["--memory", "64MiB", "--memcached", "off", "--redis", "127.0.0.1:0", "--admin", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = process.stdout.readline()
        port = int(re.search(r"redis=127\.0\.0\.1:(\d+)", ready).group(1))
        with redis.Redis("127.0.0.1", port) as client:
            client.set("key", "value")
            assert client.get("key") == b"value"
        yield data
        process.terminate()
        assert process.wait(PATIENCE_SECONDS) == 0


def usage(data, form):
    """An export that has rows, once there are some."""
    command = [os.environ["TEST_TIDEMARK"], "usage", "default", "--format", form, "--data", str(data)]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        if len(done.stdout.splitlines()) >= (2 if form == "focus" else 1):
            return done.stdout
        assert time.monotonic() < deadline, done.stdout


def check_value(column, kind, value):
    if kind == "Decimal":
        # Attribute "Numeric format": digits, a point, an exponent; no thousands.
        assert re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", value), (column, value)
        assert Decimal(value) >= 0, (column, value)
    elif kind == "Date":
        # Attribute "Date/time format".
        assert value.endswith("Z") and datetime.fromisoformat(value.replace("Z", "+00:00")), (column, value)
    elif kind == "Json":
        assert isinstance(json.loads(value), dict), (column, value)
    assert value in ALLOWED.get(column, {value}), (column, value)


def test_focus_has_the_columns_of_the_specification(server):
    rows = list(csv.DictReader(io.StringIO(usage(server, "focus"))))
    columns = [line.split() for line in FOCUS.split("\n") if line]
    assert list(rows[0]) == [name for name, *_ in columns]
    for row in rows:
        assert None not in row and None not in row.values(), "a row has other fields than the header"
        for name, kind, *null in columns:
            assert row[name] or null, f"{name} is null"
            if row[name]:
                check_value(name, kind, row[name])
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"], row
        assert row["SubAccountName"] == "default"
        quantity, price = Decimal(row["PricingQuantity"]), Decimal(row["ListUnitPrice"])
        # Costs are cut off at a trillionth, as the bill is.
        assert abs(quantity * price - Decimal(row["ListCost"])) <= Decimal("1e-11"), row


def test_cloud_events_have_the_attributes_of_the_specification(server):
    for line in usage(server, "cloudevents").splitlines():
        event = json.loads(line)
        # CloudEvents 1.0.2, "Context Attributes": names of lower-case letters and digits.
        assert all(re.fullmatch(r"[a-z0-9]+", name) for name in event), event
        for name in ["id", "source", "specversion", "type"]:
            assert isinstance(event[name], str) and event[name], event
        assert event["specversion"] == "1.0"
        assert urlsplit(event["source"]).path, event
        assert datetime.fromisoformat(event["time"].replace("Z", "+00:00")).tzinfo, event
        assert event["datacontenttype"] == "application/json"
        assert event["subject"] == event["data"]["tenant"] == "default"
