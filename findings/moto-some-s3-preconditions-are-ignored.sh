#!/usr/bin/env bash
# moto 5.2.5 (S3)
# Bet: moto obeys the preconditions that S3 documents for its writes: a put with a stale If-Match, or with If-None-Match
#   on a key that exists, gets 412, and so do the other requests that write or delete with such a condition.
# Behaviour: it obeys them for a put and a single delete, and If-None-Match for the end of a multipart upload. It ignores
#   If-Match there, both conditions of a copy, and the ETag of an entry in a batch delete: what another writer has put in
#   between is overwritten or deleted, and the call succeeds.
# Cost: a compare-and-set that passes its tests with small objects loses updates in them from the size on at which the
#   body goes up in parts; a lease that is released by a batch delete with its ETag deletes its successor's.
# Seen: put, If-Match: PreconditionFailed, left b'newer'
#       put, If-None-Match: PreconditionFailed, left b'newer'
#       end of a multipart upload, If-Match: ok, left b'mine'
#       end of a multipart upload, If-None-Match: PreconditionFailed, left b'newer'
#       copy, If-Match: ok, left b'mine'
#       copy, If-None-Match: ok, left b'mine'
#       delete, If-Match: PreconditionFailed, left b'newer'
#       batch delete, ETag: ok, left nothing
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check boto3==1.44.8 "moto[s3]==5.2.5"
cat > "$place/run.py" <<'PY'
import sys

import boto3
from botocore.exceptions import ClientError
from moto import mock_aws

OBJECT = {"Bucket": "leases", "Key": "owner"}
SOURCE = {"Bucket": "leases", "Key": "source"}


def put(**condition):
    s3.put_object(**OBJECT, Body=b"mine", **condition)


def multipart(**condition):
    upload = s3.create_multipart_upload(**OBJECT)["UploadId"]
    part = s3.upload_part(**OBJECT, UploadId=upload, PartNumber=1, Body=b"mine")["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
    s3.complete_multipart_upload(**OBJECT, UploadId=upload, MultipartUpload=parts, **condition)


def copy(**condition):
    s3.copy_object(**OBJECT, CopySource=SOURCE, **condition)


def delete(**condition):
    s3.delete_object(**OBJECT, **condition)


def batch_delete(ETag):
    answer = s3.delete_objects(Bucket="leases", Delete={"Objects": [{"Key": "owner", "ETag": ETag}]})
    assert "Errors" not in answer


def run(what, call, name):
    """`call` with a condition that does not hold: the object is there, and is not the one that was read."""
    stale = s3.put_object(**OBJECT, Body=b"older")["ETag"]
    s3.put_object(**OBJECT, Body=b"newer")
    try:
        call(**{name: "*" if name == "IfNoneMatch" else stale})
        end = "ok"
    except ClientError as error:
        end = error.response["Error"]["Code"]
    try:
        left = s3.get_object(**OBJECT)["Body"].read()
    except s3.exceptions.NoSuchKey:
        left = "nothing"
    print(f"{what}: {end}, left {left}")
    return end, left


with mock_aws():
    s3 = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    s3.create_bucket(Bucket="leases")
    s3.put_object(**SOURCE, Body=b"mine")
    seen = [
        run("put, If-Match", put, "IfMatch"),
        run("put, If-None-Match", put, "IfNoneMatch"),
        run("end of a multipart upload, If-Match", multipart, "IfMatch"),
        run("end of a multipart upload, If-None-Match", multipart, "IfNoneMatch"),
        run("copy, If-Match", copy, "IfMatch"),
        run("copy, If-None-Match", copy, "IfNoneMatch"),
        run("delete, If-Match", delete, "IfMatch"),
        run("batch delete, ETag", batch_delete, "ETag"),
    ]

obeyed, ignored = ("PreconditionFailed", b"newer"), ("ok", b"mine")
sys.exit(seen != [obeyed, obeyed, ignored, obeyed, ignored, ignored, obeyed, ("ok", "nothing")])
PY
"$place/venv/bin/python" "$place/run.py"
