"""An instance: says that it is ready, calls the function with each event that comes as a line, and answers with a line."""
import json
import sys

from function import lambda_handler

print(json.dumps({}), flush=True)
for line in sys.stdin:
    try:
        answer = lambda_handler(json.loads(line), None)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
