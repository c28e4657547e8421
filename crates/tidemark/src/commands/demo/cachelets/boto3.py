"""The two calls of boto3 that the function makes, for machines without boto3. It reads the same variables."""
import datetime
import hashlib
import hmac
import http.client
import io
import os
import urllib.parse


def client(service):
    assert service == "s3"
    return Client(os.environ["AWS_ENDPOINT_URL_S3"])


class Client:
    def __init__(self, endpoint):
        self.host = urllib.parse.urlsplit(endpoint).netloc
        self.connection = http.client.HTTPConnection(self.host, timeout=30)

    def get_object(self, Bucket, Key):
        return {"Body": io.BytesIO(self._call("GET", Bucket, Key, b""))}

    def put_object(self, Bucket, Key, Body):
        self._call("PUT", Bucket, Key, Body)
        return {}

    def _call(self, method, bucket, key, body):
        path = urllib.parse.quote(f"/{bucket}/{key}")
        self.connection.request(method, path, body, self._signed(method, path, body))
        answer = self.connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise OSError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content

    def _signed(self, method, path, body):
        at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{at[:8]}/us-east-1/s3/aws4_request"
        digest = hashlib.sha256(body).hexdigest()
        names = "host;x-amz-content-sha256;x-amz-date"
        headers = f"host:{self.host}\nx-amz-content-sha256:{digest}\nx-amz-date:{at}\n"
        canonical = "\n".join([method, path, "", headers, names, digest])
        to_sign = "\n".join(["AWS4-HMAC-SHA256", at, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"]).encode()
        for part in scope.split("/"):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(secret, to_sign.encode(), hashlib.sha256).hexdigest()
        credential = os.environ["AWS_ACCESS_KEY_ID"] + "/" + scope
        return {
            "x-amz-content-sha256": digest,
            "x-amz-date": at,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}",
        }
