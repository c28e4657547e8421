"""Counts the words of a text in S3, as FunctionBench's feature extraction does, and keeps the result where it is asked to."""
import json
import re
from collections import Counter

import boto3

s3 = boto3.client("s3")


def lambda_handler(event, context):
    source = s3.get_object(Bucket=event["input_bucket"], Key=event["object_key"])
    words = Counter(re.findall(r"[a-z]+", source["Body"].read().decode()))
    if "output_key" in event:
        result = json.dumps(words.most_common(5)).encode()
        s3.put_object(Bucket=event["input_bucket"], Key=event["output_key"], Body=result)
    return {"words": sum(words.values())}
