"""An S3 server for tests: moto, which checks signatures with botocore, and boto3 as a second client of it.

Arguments: port, bucket, users as JSON ({name: [action, ...]}), and a certificate with its key for TLS. Prints one line of
JSON with each user's keys once it answers. Then each line of its input is a command, answered by a line. It ends with its
input, so with the test.
"""

import io
import json
import logging
import os
import sys
import threading
import warnings

import boto3
from botocore.config import Config
from flask import request
from moto import settings
from moto.iam.access_control import IAMRequestBase
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

port, bucket, users, *tls = sys.argv[1:]
logging.getLogger("werkzeug").setLevel(logging.ERROR)
warnings.simplefilter("ignore")
moto = DomainDispatcherApplication(create_backend_app)
turn = threading.Lock()


def app(environ, start_response):
    """moto's state is not made for requests side by side."""
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    with turn:
        return [b"".join(moto(environ, start_response))]


def check_signature(self, check=IAMRequestBase.check_signature):
    """moto decodes the query before it computes the signature, which is that of the query as it was sent."""
    self._path = request.environ["RAW_URI"]
    check(self)


IAMRequestBase.check_signature = check_signature
server = make_server("127.0.0.1", int(port), app, threaded=True, ssl_context=tuple(tls) or None)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"


def client(service, key="none", secret="none"):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        verify=False if tls else None,
        config=Config(proxies={}),
    )


iam = client("iam")
keys = {}
for name, actions in json.loads(users).items():
    iam.create_user(UserName=name)
    allowed = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [allowed]}
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    keys[name] = [key["AccessKeyId"], key["SecretAccessKey"]]
s3 = client("s3", *next(iter(keys.values())))
s3.create_bucket(Bucket=bucket)
# From now on each request needs a valid signature of a user who may do it.
settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
print(json.dumps(keys), flush=True)


def command(verb, name=None, text=None):
    if verb == "list":
        listed = s3.list_objects_v2(Bucket=bucket).get("Contents", [])
        return [of["Key"] for of in listed]
    if verb == "get":
        return s3.get_object(Bucket=bucket, Key=name)["Body"].read().hex()
    if verb == "put":
        s3.put_object(Bucket=bucket, Key=name, Body=text.encode())
        return None
    raise ValueError(verb)


for line in sys.stdin:
    print(json.dumps(command(*json.loads(line))), flush=True)
os._exit(0)
