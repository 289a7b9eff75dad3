"""An S3 server with the bucket of BUCKET, at AWS_ENDPOINT_URL: moto's, which keeps objects in memory and accepts any key."""

import os
import threading
from urllib.parse import urlsplit

import boto3
from moto.server import ThreadedMotoServer

url = urlsplit(os.environ["AWS_ENDPOINT_URL"])
ThreadedMotoServer(url.hostname, url.port, verbose=False).start()
boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=os.environ["BUCKET"])
threading.Event().wait()
